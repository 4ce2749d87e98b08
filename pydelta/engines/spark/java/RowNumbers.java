/**
 * Counts the rows that Spark's Parquet reader reads, with the results of its superclass but without an object per row.
 *
 * <p>Code that Spark generates has this class as an inner one, so it has no imports. If a version of Spark has none of
 * the fields that "install" looks for, rows are counted by the superclass.
 */
public final class RowNumbers
        extends org.apache.spark.sql.execution.datasources.parquet.ParquetRowIndexUtil.RowIndexGenerator {
    private boolean counts;
    private long next;
    private java.util.PrimitiveIterator.OfLong chosen;
    private long first;

    /** Begins within a row group, of which Spark's numbers of further rows are "rest". */
    public RowNumbers(int column, scala.collection.Iterator rest, boolean counts, long next) {
        super(column);
        this.rowIndexIterator_$eq(rest);
        this.counts = counts;
        this.next = next;
    }

    /** Begins a row group, of which the reader may read only some pages. */
    public void initFromPageReadStore(org.apache.parquet.column.page.PageReadStore pages) {
        super.initFromPageReadStore(pages);
        java.util.Optional found = pages.getRowIndexes();
        this.chosen = found.isPresent() ? (java.util.PrimitiveIterator.OfLong) found.get() : null;
        this.first = ((Long) pages.getRowIndexOffset().get()).longValue();
        this.next = this.first;
        this.counts = true;
    }

    public void populateRowIndex(org.apache.spark.sql.execution.vectorized.WritableColumnVector column, int rows) {
        if (!this.counts) {
            super.populateRowIndex(column, rows);
        } else if (this.chosen == null) {
            long start = this.next;
            for (int row = 0; row < rows; row++) {
                column.putLong(row, start + row);
            }
            this.next = start + rows;
        } else {
            for (int row = 0; row < rows; row++) {
                column.putLong(row, this.first + this.chosen.nextLong());
            }
        }
    }

    /** Makes the Parquet readers from which iterators read at the moment count in this way, if they can. */
    public static void install(scala.collection.Iterator[] inputs) {
        try {
            java.util.ArrayDeque open = new java.util.ArrayDeque(java.util.Arrays.asList((Object[]) inputs));
            for (int steps = 0; steps < 50 && !open.isEmpty(); steps++) {
                Object item = open.poll();
                if (item instanceof org.apache.spark.sql.execution.datasources.parquet.VectorizedParquetRecordReader) {
                    replace((org.apache.spark.sql.execution.datasources.parquet.VectorizedParquetRecordReader) item);
                } else {
                    addSources(item, open);
                }
            }
        } catch (Exception error) {
            return; // It only saves time.
        } catch (LinkageError error) {
            return;
        }
    }

    private static void addSources(Object item, java.util.ArrayDeque found) throws Exception {
        for (Class type = item.getClass(); type != null; type = type.getSuperclass()) {
            java.lang.reflect.Field[] fields = type.getDeclaredFields();
            for (int place = 0; place < fields.length; place++) {
                Class held = fields[place].getType();
                boolean reads = scala.collection.Iterator.class.isAssignableFrom(held)
                    || org.apache.hadoop.mapreduce.RecordReader.class.isAssignableFrom(held);
                if (reads && !java.lang.reflect.Modifier.isStatic(fields[place].getModifiers())) {
                    fields[place].setAccessible(true);
                    Object value = fields[place].get(item);
                    if (value != null && value != item) {
                        found.add(value);
                    }
                }
            }
        }
    }

    private static void replace(
            org.apache.spark.sql.execution.datasources.parquet.VectorizedParquetRecordReader reader) throws Exception {
        Class known = org.apache.spark.sql.execution.datasources.parquet.ParquetRowIndexUtil.RowIndexGenerator.class;
        java.lang.reflect.Field field =
            org.apache.spark.sql.execution.datasources.parquet.VectorizedParquetRecordReader.class
                .getDeclaredField("rowIndexGenerator");
        java.lang.reflect.Field place = known.getDeclaredField("rowIndexColumnIdx");
        field.setAccessible(true);
        place.setAccessible(true);
        org.apache.spark.sql.execution.datasources.parquet.ParquetRowIndexUtil.RowIndexGenerator used =
            (org.apache.spark.sql.execution.datasources.parquet.ParquetRowIndexUtil.RowIndexGenerator)
                field.get(reader);
        if (used == null || used.getClass() != known) {
            return;
        }
        int column = place.getInt(used);
        scala.collection.Iterator rest = used.rowIndexIterator();
        org.apache.spark.sql.vectorized.ColumnarBatch batch = reader.resultBatch();
        int rows = batch.numRows();
        long next = rows == 0 ? 0 : batch.column(column).getLong(rows - 1) + 1;
        // The rest of a row group is counted here only if Spark counts all of its rows.
        boolean counts = rows > 0 && rest != null && batch.column(column).getLong(0) == next - rows
            && rest.getClass().getName().equals("scala.collection.immutable.NumericRange$NumericRangeIterator");
        field.set(reader, new RowNumbers(column, rest, counts, next));
    }
}
