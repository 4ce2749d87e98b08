import java.util.function.UnaryOperator;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.unsafe.Platform;

/** A rule that replaces a plan that may read files by what a function returns for it, or throws what that returns. */
public final class PydeltaNewestVersions extends Rule {
    private final UnaryOperator move;

    public PydeltaNewestVersions(UnaryOperator move) {
        this.move = move;
    }

    public TreeNode apply(TreeNode plan) {
        if (!PydeltaCalls.mayReadFiles((LogicalPlan) plan)) {
            return plan;
        }
        Object moved = this.move.apply(plan);
        if (moved instanceof Throwable) {
            Platform.throwException((Throwable) moved);
        }
        return (TreeNode) moved;
    }
}
