import java.io.Serializable;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BinaryExpression;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.codegen.Block;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeBlock;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.types.DataType;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The number of a row in its file, which it makes Spark's Parquet reader count without an object per row.
 *
 * <p>It has the value of its first argument, Spark's own number, in every case; only generated code does more. Tasks
 * get that code as text and this object replaced by its first argument, since they do not have this class.
 */
public final class PydeltaRowNumber extends BinaryExpression implements Serializable {
    private final Expression row;
    private final Expression file;
    private final String source;

    public PydeltaRowNumber(Expression row, Expression file, String source) {
        this.row = row;
        this.file = file;
        this.source = source;
    }

    public TreeNode left() {
        return this.row;
    }

    public TreeNode right() {
        return this.file;
    }

    public DataType dataType() {
        return this.row.dataType();
    }

    public boolean nullable() {
        return this.row.nullable();
    }

    public boolean nullIntolerant() {
        return true;
    }

    public Object eval(InternalRow input) {
        return this.row.eval(input);
    }

    public ExprCode doGenCode(CodegenContext context, ExprCode result) {
        ExprCode row = this.row.genCode(context);
        if (context.INPUT_ROW() != null || context.currentVars() == null) {
            return row;
        }
        ExprCode file = this.file.genCode(context);
        String name = context.freshName("RowNumbers");
        context.addInnerClass(this.source.replace("RowNumbers", name));
        String seen = context.addMutableState("byte[]", "countedFile", context.addMutableState$default$3(), false, true);
        String text = "if (" + seen + " != " + file.value() + ") { " + seen + " = " + file.value() + "; "
            + name + ".install(inputs); }\n";
        Block own = new CodeBlock((Seq) CollectionConverters.asScala(Arrays.asList(new Object[] {text})).toSeq(),
            (Seq) (Object) Nil$.MODULE$);
        Block code = row.code().$plus(file.code()).$plus(own);
        return new ExprCode(code, row.isNull(), row.value());
    }

    public TreeNode withNewChildrenInternal(TreeNode row, TreeNode file) {
        return new PydeltaRowNumber((Expression) row, (Expression) file, this.source);
    }

    public int productArity() {
        return 2;
    }

    public Object productElement(int position) {
        return position == 0 ? this.row : this.file;
    }

    public Seq otherCopyArgs() {
        return (Seq) CollectionConverters.asScala(Arrays.asList(new Object[] {this.source})).toSeq();
    }

    public boolean canEqual(Object other) {
        return other instanceof PydeltaRowNumber;
    }

    public boolean equals(Object other) {
        return other instanceof PydeltaRowNumber && this.row.equals(((PydeltaRowNumber) other).row)
            && this.file.equals(((PydeltaRowNumber) other).file);
    }

    public int hashCode() {
        return 31 * this.row.hashCode() + this.file.hashCode();
    }

    private Object writeReplace() {
        return this.row;
    }
}
