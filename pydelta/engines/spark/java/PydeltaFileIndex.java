import java.util.ArrayList;
import java.util.function.BiFunction;
import java.util.function.Supplier;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** The files of a scan. Python lists them; the rest, for which Spark asks many times per query, is answered here. */
public final class PydeltaFileIndex implements FileIndex {
    private final Object files;
    private final long number;
    private final String identity;
    private final String text;
    private final Seq roots;
    private final StructType partitionSchema;
    private final long sizeInBytes;
    private final boolean timeTravel;

    /** Python's object is a function of the filters and a supplier of all paths; texts: identity, name, roots. */
    public PydeltaFileIndex(
            Object files, long number, String[] texts, StructType partitionSchema, long sizeInBytes, boolean timeTravel) {
        this.files = files;
        this.number = number;
        this.identity = texts[0];
        this.text = texts[1];
        ArrayList paths = new ArrayList();
        for (int i = 2; i < texts.length; i++) {
            paths.add(new Path(texts[i]));
        }
        this.roots = CollectionConverters.asScala(paths).toIndexedSeq();
        this.partitionSchema = partitionSchema;
        this.sizeInBytes = sizeInBytes;
        this.timeTravel = timeTravel;
    }

    /** The number by which Python finds its object again. */
    public long number() {
        return this.number;
    }

    public Seq rootPaths() {
        return this.roots;
    }

    public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
        return (Seq) ((BiFunction) this.files).apply(partitionFilters, dataFilters);
    }

    public String[] inputFiles() {
        return (String[]) ((Supplier) this.files).get();
    }

    /** Does nothing, because the list of files is frozen. */
    public void refresh() {
    }

    public long sizeInBytes() {
        return this.sizeInBytes;
    }

    public StructType partitionSchema() {
        return this.partitionSchema;
    }

    public Option metadataOpsTimeNs() {
        return Option.empty();
    }

    public boolean isTimeTravel() {
        return this.timeTravel;
    }

    public String toString() {
        return this.text;
    }

    public boolean equals(Object other) {
        return other instanceof PydeltaFileIndex && this.identity.equals(((PydeltaFileIndex) other).identity);
    }

    public int hashCode() {
        return this.identity.hashCode();
    }
}
