import java.util.function.BiFunction;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.unsafe.Platform;

/** A rule that replaces a plan with our scans by what a function returns for it and them, or throws what that returns. */
public final class PydeltaNewestVersions extends Rule {
    private final BiFunction move;

    public PydeltaNewestVersions(BiFunction move) {
        this.move = move;
    }

    public TreeNode apply(TreeNode plan) {
        String scans = PydeltaCalls.scans((LogicalPlan) plan);
        if (scans.isEmpty()) {
            return plan;
        }
        Object moved = this.move.apply(plan, scans);
        if (moved instanceof Throwable) {
            Platform.throwException((Throwable) moved);
        }
        return (TreeNode) moved;
    }
}
