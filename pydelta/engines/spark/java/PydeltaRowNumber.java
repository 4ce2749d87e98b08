import java.io.Serializable;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BinaryExpression;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeBlock;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.types.DataType;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The number of a row in its file, Spark's "_metadata.row_index", which lets the reader count by "RowNumbers".
 *
 * <p>The value is always that of the first expression. Code that Spark generates for a stage also installs the counter,
 * once per file. Executors get that code as text. They do not have this class: it is sent as its first expression.
 */
public final class PydeltaRowNumber extends BinaryExpression implements Serializable {
    private static final int MOST_FILES = 100;
    private final Expression row;
    private final Expression file;
    private final String counter;

    /**
     * @param row Spark's number of the row.
     * @param file A binary column that has one array per file.
     * @param counter The source of "RowNumbers" as an inner class.
     */
    public PydeltaRowNumber(Expression row, Expression file, String counter) {
        this.row = row;
        this.file = file;
        this.counter = counter;
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

    /** Whether a null among the columns makes the value null: Spark tests such a condition after the others. */
    public boolean nullIntolerant() {
        return true;
    }

    public Object eval(InternalRow input) {
        return this.row.eval(input);
    }

    public ExprCode doGenCode(CodegenContext context, ExprCode result) {
        ExprCode number = this.row.genCode(context);
        if (context.INPUT_ROW() != null || context.currentVars() == null) { // It is not a stage that reads batches.
            return number;
        }
        ExprCode array = this.file.genCode(context);
        String name = context.freshName("RowNumbers");
        context.addInnerClass(this.counter.replace("RowNumbers", name));
        String seen = context.addMutableState("byte[]", "seen", context.addMutableState$default$3(), false, true);
        String files = context.addMutableState("int", "files", context.addMutableState$default$3(), false, true);
        // A reader without batches has another array for each row, hence the limit.
        String text = "if (" + seen + " != " + array.value() + " && " + files + " < " + MOST_FILES + ") {\n"
            + "  " + seen + " = " + array.value() + ";\n  " + files + "++;\n  " + name + ".install(inputs);\n}\n";
        CodeBlock install = new CodeBlock(list(text), (Seq) (Object) Nil$.MODULE$);
        return new ExprCode(number.code().$plus(array.code()).$plus(install), number.isNull(), number.value());
    }

    public TreeNode withNewChildrenInternal(TreeNode newRow, TreeNode newFile) {
        return new PydeltaRowNumber((Expression) newRow, (Expression) newFile, this.counter);
    }

    public String prettyName() {
        return "row_number_in_file";
    }

    public int productArity() {
        return 2;
    }

    public Object productElement(int position) {
        return position == 0 ? this.row : this.file;
    }

    public Seq otherCopyArgs() {
        return list(this.counter);
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

    /** What is sent to executors. The compiler makes private methods static, where serialization does not see them. */
    protected Object writeReplace() {
        return this.row;
    }

    private static Seq list(Object item) {
        return (Seq) CollectionConverters.asScala(Arrays.asList(new Object[] {item})).toSeq();
    }
}
