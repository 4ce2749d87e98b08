import java.util.function.BiFunction;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import scala.Function1;
import scala.runtime.AbstractPartialFunction;

/** Replaces the nodes of some kinds by what a function returns for a node and its name. It keeps those that get null. */
public final class PydeltaWalk extends AbstractPartialFunction {
    private final BiFunction replace;
    private final String kinds;

    /** The kinds are first words of names, each between commas; an empty text is all of them. */
    public PydeltaWalk(BiFunction replace, String kinds) {
        this.replace = replace;
        this.kinds = kinds;
    }

    public boolean isDefinedAt(Object node) {
        return true;
    }

    public Object applyOrElse(Object node, Function1 otherwise) {
        String name = ((TreeNode) node).nodeName();
        int end = name.indexOf(' ');
        String kind = end < 0 ? name : name.substring(0, end);
        if (!this.kinds.isEmpty() && this.kinds.indexOf("," + kind + ",") < 0) {
            return node;
        }
        Object replaced = this.replace.apply(node, name);
        return replaced == null ? node : replaced;
    }
}
