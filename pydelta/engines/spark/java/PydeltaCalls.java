import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.lang.reflect.Field;
import java.net.Socket;
import java.net.SocketException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.function.BiFunction;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext$;
import org.apache.spark.rdd.MapPartitionsRDD;
import org.apache.spark.rdd.ParallelCollectionPartition;
import org.apache.spark.rdd.ParallelCollectionRDD;
import org.apache.spark.rdd.RDD;
import org.apache.spark.api.python.PythonRDD;
import org.apache.spark.sql.DataFrameWriter;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Range;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.arrow.ArrowBatchStreamWriter;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SizeEstimator;
import py4j.GatewayServer;
import py4j.GatewayServerListener;
import py4j.Py4JServerConnection;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Answers in one call through py4j what would take tens of them. It decides nothing: it reads and converts. */
public final class PydeltaCalls {
    private static boolean prompt = false;
    private final ObjectMapper json = new ObjectMapper();
    private final Map states = new HashMap();
    private final Map numbers = new HashMap();
    private long last = 0;

    public PydeltaCalls(GatewayServer gateway) throws Exception {
        synchronized (PydeltaCalls.class) {
            if (!prompt) {
                prompt = true;
                new PromptAnswers().install(gateway);
            }
        }
    }

    /** Returns a session's settings, and two of them with their defaults. See changed. */
    public synchronized String settings(SparkSession session, long known) throws Exception {
        SQLConf all = session.sessionState().conf();
        Map now = new HashMap();
        now.put("conf", new HashMap(CollectionConverters.asJava(all.getAllConfs())));
        now.put("time_zone", all.sessionLocalTimeZone());
        now.put("parquet_codec", all.parquetCompressionCodec());
        return this.changed("settings", now, known);
    }

    /** Returns the settings of a session's Hadoop configuration that begin with one of some prefixes. See changed. */
    public synchronized String storage(SparkSession session, String prefixes, long known) throws Exception {
        Configuration hadoop = session.sessionState().newHadoopConf();
        Map now = new HashMap();
        String[] wanted = prefixes.split(",");
        Iterator entries = hadoop.iterator();
        while (entries.hasNext()) {
            Map.Entry entry = (Map.Entry) entries.next();
            String name = (String) entry.getKey();
            String value = (String) entry.getValue();
            for (int i = 0; i < wanted.length && value != null; i++) {
                if (name.startsWith(wanted[i])) {  // Hadoop takes a tenth of a millisecond to resolve one value.
                    now.put(name, value.indexOf('$') < 0 ? value : hadoop.get(name));
                    break;
                }
            }
        }
        return this.changed("storage", now, known);
    }

    /** Returns a line with the number of a state, and the state as JSON; or null if it still has the known number. */
    private String changed(String what, Map now, long known) throws Exception {
        if (!now.equals(this.states.get(what))) {
            this.states.put(what, now);
            this.numbers.put(what, Long.valueOf(++this.last));
        }
        Long number = (Long) this.numbers.get(what);
        return number.longValue() == known ? null : number + "\n" + this.json.writeValueAsString(now);
    }

    /** Makes a session the active one. Returns the one before, null if there was none, or true if it was this one. */
    public Object activate(SparkSession session) {
        Option before = org.apache.spark.sql.SparkSession.getActiveSession();
        if (before.isDefined() && before.get() == session) {
            return Boolean.TRUE;
        }
        org.apache.spark.sql.SparkSession.setActiveSession(session);
        return before.isDefined() ? before.get() : null;
    }

    /** Returns what a DataFrameWriter was given, as JSON. */
    public String writer(DataFrameWriter writer) throws Exception {
        Map found = new HashMap();
        found.put("source", writer.source());
        found.put("mode", writer.curmode().name());
        found.put("options", CollectionConverters.asJava(writer.extraOptions().originalMap()));
        found.put("clustering", this.listOf(writer.clusteringColumns()));
        found.put("partitioning", this.listOf(writer.partitioningColumns()));
        found.put("buckets", Boolean.valueOf(writer.numBuckets().isDefined()));
        found.put("sorting", Boolean.valueOf(writer.sortColumnNames().isDefined()));
        return this.json.writeValueAsString(found);
    }

    private Object listOf(Option names) {
        return names.isDefined() ? CollectionConverters.asJava((scala.collection.Seq) names.get()) : null;
    }

    /** Returns a plan or an expression with some nodes replaced, those in a plan's subqueries too. See PydeltaWalk. */
    public TreeNode transform(TreeNode tree, BiFunction replace, String kinds) {
        PydeltaWalk walk = new PydeltaWalk(replace, kinds);
        return tree instanceof LogicalPlan
            ? (TreeNode) ((LogicalPlan) tree).transformDownWithSubqueries(walk) : tree.transformDown(walk);
    }

    /** Returns a node of a plan with its expressions replaced by what a function returns for each and its name. */
    public LogicalPlan mapExpressions(LogicalPlan node, BiFunction replace) {
        return (LogicalPlan) node.mapExpressions(new PydeltaWalk(replace, ""));
    }

    /** Returns the index of a scan. See PydeltaFileIndex. */
    public PydeltaFileIndex fileIndex(
            Object files, long number, String texts, StructType partitionSchema, long sizeInBytes, boolean timeTravel) {
        return new PydeltaFileIndex(files, number, texts.split("\0"), partitionSchema, sizeInBytes, timeTravel);
    }

    /**
     * Returns the numbers of our scans among a plan's leaves, separated by blanks.
     *
     * A * stands first if there may be more in subqueries or in aggregates that were answered before.
     */
    public static String scans(LogicalPlan plan) {
        StringBuilder found = new StringBuilder();
        boolean more = plan.containsPattern(TreePattern.PLAN_EXPRESSION());
        scala.collection.Iterator leaves = plan.collectLeaves().iterator();
        while (leaves.hasNext()) {
            Object leaf = leaves.next();
            more = more || leaf instanceof OneRowRelation;
            Object relation = leaf instanceof LogicalRelation ? ((LogicalRelation) leaf).relation() : null;
            Object index = relation instanceof HadoopFsRelation ? ((HadoopFsRelation) relation).location() : null;
            if (index instanceof PydeltaFileIndex) {
                found.append(' ').append(((PydeltaFileIndex) index).number());
            }
        }
        return (more ? "*" : "") + found;
    }

    public String scans(Dataset frame) {
        return scans(frame.queryExecution().analyzed());
    }

    /**
     * Returns the rows of a frame if they come from the driver and are few, as their number in 8 bytes and a stream of Arrow.
     *
     * null: they do not, or are many. A number: toArrow gives so many rows (-1 if only that shows the number).
     */
    public Object rowsAtHand(Dataset frame, long mostBytes, long fewBytes) throws Exception {
        QueryExecution execution = frame.queryExecution();
        Seq leaves = execution.analyzed().collectLeaves();
        if (leaves.size() != 1) {
            return null;
        }
        Object leaf = leaves.apply(0);
        if (!(leaf instanceof LocalRelation || leaf instanceof Range || leaf instanceof LogicalRDD)) {
            return null;  // This check comes first because optimizing the plan would be repeated by the job.
        }
        LogicalPlan plan = execution.optimizedPlan();
        ArrayList above = new ArrayList();
        LogicalPlan below = plan;
        boolean counted = true;
        boolean evaluated = true;
        while (below instanceof Project || below instanceof Filter || below instanceof GlobalLimit
                || below instanceof LocalLimit) {
            counted = counted && below instanceof Project;
            evaluated = evaluated && this.isDeterministic(below);
            above.add(below);
            below = (LogicalPlan) below.children().head();
        }
        Seq rows = null;
        long count = -1;
        int slices = frame.sparkSession().sparkContext().defaultParallelism();
        if (below instanceof LocalRelation) {
            long bytes = below.stats().sizeInBytes().toLong();
            if (bytes > (above.isEmpty() ? mostBytes : fewBytes)) {
                return null;
            }
            evaluated = evaluated && bytes <= fewBytes;
            rows = ((LocalRelation) below).data();
            count = rows.size();
        } else if (below instanceof Range) {
            Range range = (Range) below;
            Option wanted = range.numSlices();
            if (!range.numElements().isValidInt() || range.numElements().toLong() * 16 > fewBytes
                    || (wanted.isDefined() && ((Integer) wanted.get()).intValue() != slices)) {
                return null;
            }
            count = range.numElements().toLong();
            rows = this.numbers(range, (int) count);
        } else if (below instanceof LogicalRDD) {
            RDD rdd = ((LogicalRDD) below).rdd();
            int kind = rdd.getNumPartitions() == slices ? this.kindOf(rdd, fewBytes) : 0;
            if (kind == 0) {
                return null;
            }
            counted = false;
            evaluated = evaluated && kind == 1;
            rows = evaluated ? this.computed(rdd) : null;
        } else {
            return null;
        }
        if (evaluated) {
            LogicalPlan result = new LocalRelation(below.output(), rows, false, Option.empty());
            for (int i = above.size() - 1; i >= 0; i--) {
                ArrayList child = new ArrayList();
                child.add(result);
                result = (LogicalPlan) ((LogicalPlan) above.get(i)).withNewChildren(this.seq(child));
                if (i == 0 || !(above.get(i - 1) instanceof GlobalLimit)) {  // It is evaluated with the limit below.
                    result = ConvertToLocalRelation$.MODULE$.apply(result);
                }
            }
            byte[] stream = result instanceof LocalRelation ? this.stream((LocalRelation) result, frame) : null;
            if (stream != null && stream.length <= 2 * fewBytes) {  // Spark's estimate knows no long texts.
                return stream;
            }
        }
        return Long.valueOf(counted ? count : -1);
    }

    /** Looks at the expressions alone: Spark takes any limit for one whose rows may differ. */
    private boolean isDeterministic(LogicalPlan node) {
        scala.collection.Iterator expressions = node.expressions().iterator();
        while (expressions.hasNext()) {
            if (!((Expression) expressions.next()).deterministic()) {
                return false;
            }
        }
        return true;
    }

    private Seq seq(ArrayList items) {
        return CollectionConverters.asScala(items).toIndexedSeq();
    }

    private Seq numbers(Range range, int count) {
        ArrayList rows = new ArrayList(count);
        for (int i = 0; i < count; i++) {
            rows.add(new GenericInternalRow(new Object[] {Long.valueOf(range.start() + i * range.step())}));
        }
        return this.seq(rows);
    }

    /** Returns 0 for an RDD whose rows are not the driver's or not few, 2 if a Python worker makes them, else 1. */
    private int kindOf(RDD rdd, long fewBytes) {
        int kind = 1;
        while (!(rdd instanceof ParallelCollectionRDD)) {
            if (!(rdd instanceof MapPartitionsRDD || rdd instanceof PythonRDD) || rdd.dependencies().size() != 1) {
                return 0;
            }
            if (rdd instanceof PythonRDD || rdd.getStorageLevel().isValid() || rdd.isCheckpointed()) {
                kind = 2;
            }
            rdd = ((org.apache.spark.Dependency) rdd.dependencies().head()).rdd();
        }
        if (rdd.getStorageLevel().isValid() || rdd.isCheckpointed()) {
            kind = 2;
        }
        Partition[] partitions = rdd.partitions();
        long left = fewBytes;
        for (int i = 0; i < partitions.length && left >= 0; i++) {
            left = left - SizeEstimator.estimate(((ParallelCollectionPartition) partitions[i]).values());
        }
        return left < 0 ? 0 : kind;
    }

    private Seq computed(RDD rdd) {
        ArrayList rows = new ArrayList();
        Partition[] partitions = rdd.partitions();
        for (int i = 0; i < partitions.length; i++) {
            scala.collection.Iterator items = rdd.iterator(partitions[i], TaskContext$.MODULE$.empty());
            while (items.hasNext()) {
                rows.add(((InternalRow) items.next()).copy());
            }
        }
        return this.seq(rows);
    }

    private byte[] stream(LocalRelation relation, Dataset frame) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        new DataOutputStream(out).writeLong((long) relation.data().size());
        ArrowBatchStreamWriter writer = new ArrowBatchStreamWriter(frame.schema(), out, "UTC", true, false);
        scala.collection.Iterator batches = ArrowConverters$.MODULE$.toBatchIterator(
            relation.data().iterator(), frame.schema(), 0L, "UTC", true, false, null);
        try {
            writer.writeBatches(batches);
        } finally {
            ((AutoCloseable) batches).close();
        }
        writer.end();
        return out.toByteArray();
    }

    /**
     * Sends answers at once over all connections of a gateway.
     *
     * Otherwise the second part of an answer of more than 8 KiB waits until the first is acknowledged, 40 ms later.
     */
    public static final class PromptAnswers implements GatewayServerListener {
        public void install(GatewayServer gateway) throws Exception {
            gateway.addListener(this);
            Field field = GatewayServer.class.getDeclaredField("connections");
            field.setAccessible(true);
            Object[] open = ((Collection) field.get(gateway)).toArray();
            for (int i = 0; i < open.length; i++) {
                this.connectionStarted((Py4JServerConnection) open[i]);
            }
        }

        public void connectionStarted(Py4JServerConnection connection) {
            Socket socket = connection.getSocket();
            if (socket == null) {
                return;  // It has ended.
            }
            try {
                socket.setTcpNoDelay(true);
            } catch (SocketException closed) {
                return;  // Its other end was closed meanwhile.
            }
        }

        public void connectionStopped(Py4JServerConnection connection) {
        }

        public void connectionError(Exception error) {
        }

        public void serverError(Exception error) {
        }

        public void serverPreShutdown() {
        }

        public void serverPostShutdown() {
        }

        public void serverStarted() {
        }

        public void serverStopped() {
        }
    }
}
