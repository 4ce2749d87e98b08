import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.delta.kernel.DataWriteContext;
import io.delta.kernel.Operation;
import io.delta.kernel.Scan;
import io.delta.kernel.Snapshot;
import io.delta.kernel.SnapshotBuilder;
import io.delta.kernel.TableManager;
import io.delta.kernel.Transaction;
import io.delta.kernel.TransactionCommitResult;
import io.delta.kernel.data.ArrayValue;
import io.delta.kernel.data.ColumnVector;
import io.delta.kernel.data.ColumnarBatch;
import io.delta.kernel.data.FilteredColumnarBatch;
import io.delta.kernel.data.MapValue;
import io.delta.kernel.data.Row;
import io.delta.kernel.defaults.engine.DefaultEngine;
import io.delta.kernel.defaults.internal.data.DefaultColumnarBatch;
import io.delta.kernel.engine.Engine;
import io.delta.kernel.engine.FileReadResult;
import io.delta.kernel.expressions.Column;
import io.delta.kernel.expressions.Literal;
import io.delta.kernel.hook.PostCommitHook;
import io.delta.kernel.internal.InternalScanFileUtils;
import io.delta.kernel.internal.data.ScanStateRow;
import io.delta.kernel.internal.types.DataTypeJsonSerDe;
import io.delta.kernel.internal.util.Utils;
import io.delta.kernel.transaction.DataLayoutSpec;
import io.delta.kernel.transaction.UpdateTableTransactionBuilder;
import io.delta.kernel.types.ArrayType;
import io.delta.kernel.types.BinaryType;
import io.delta.kernel.types.BooleanType;
import io.delta.kernel.types.ByteType;
import io.delta.kernel.types.DataType;
import io.delta.kernel.types.DateType;
import io.delta.kernel.types.DecimalType;
import io.delta.kernel.types.DoubleType;
import io.delta.kernel.types.FloatType;
import io.delta.kernel.types.IntegerType;
import io.delta.kernel.types.LongType;
import io.delta.kernel.types.MapType;
import io.delta.kernel.types.ShortType;
import io.delta.kernel.types.StringType;
import io.delta.kernel.types.StructType;
import io.delta.kernel.types.TimestampNTZType;
import io.delta.kernel.types.TimestampType;
import io.delta.kernel.utils.CloseableIterable;
import io.delta.kernel.utils.CloseableIterator;
import io.delta.kernel.utils.DataFileStatus;
import io.delta.kernel.utils.FileStatus;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;

/**
 * Reads and writes tables with Delta Kernel and its default engine: a request per line, an answer per line, both JSON.
 *
 * <p>A request has the path of the table as "read", "create", "append" or "alter".
 *
 * <ul>
 *   <li>"read" may have a "version". The answer has the "version", the "schema" as the log has it and the "rows", each
 *       a list of values: dates as days, times as microseconds, decimals as text, binaries as hexadecimal digits,
 *       structs as lists, maps as a list of keys and one of values.
 *   <li>"create" has a "schema", the "properties", and the columns by which the table is "partitioned" or "clustered".
 *   <li>"append" has "files", each the values of its "partition" by name and its "rows" with all columns.
 *   <li>"alter" has the new "schema".
 * </ul>
 *
 * <p>The answer to the last three has the "version". Each answer has "error" and "kind" instead where the kernel threw
 * an exception; an error ends the program.
 */
public final class KernelTables {
    private static final String WRITER = "pydelta's tests";

    private KernelTables() {}

    public static void main(String[] arguments) throws IOException {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Engine engine = DefaultEngine.create(new Configuration());
        ObjectMapper json = new ObjectMapper();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(json.writeValueAsString(answer(engine, json.readTree(line), json)));
        }
    }

    private static Map<String, Object> answer(Engine engine, JsonNode request, ObjectMapper json) throws IOException {
        try {
            if (request.has("create")) {
                return committed(engine, create(engine, request), CloseableIterable.emptyIterable());
            } else if (request.has("append")) {
                return append(engine, request);
            } else if (request.has("alter")) {
                StructType schema = DataTypeJsonSerDe.deserializeStructType(request.get("schema").toString());
                UpdateTableTransactionBuilder builder = update(engine, request.get("alter"), Operation.MANUAL_UPDATE);
                Transaction transaction = builder.withUpdatedSchema(schema).build(engine);
                return committed(engine, transaction, CloseableIterable.emptyIterable());
            }
            return read(engine, request, json);
        } catch (Exception error) {
            return Map.of("error", String.valueOf(error.getMessage()), "kind", error.getClass().getSimpleName());
        }
    }

    private static Map<String, Object> read(Engine engine, JsonNode request, ObjectMapper json) throws IOException {
        SnapshotBuilder builder = TableManager.loadSnapshot(request.get("read").asText());
        if (request.has("version")) {
            builder = builder.atVersion(request.get("version").asLong());
        }
        Snapshot snapshot = builder.build(engine);
        List<Object> rows = rows(engine, snapshot);
        JsonNode schema = json.readTree(snapshot.getMetadata().getSchemaString());
        return Map.of("version", snapshot.getVersion(), "schema", schema, "rows", rows);
    }

    private static Transaction create(Engine engine, JsonNode request) {
        StructType schema = DataTypeJsonSerDe.deserializeStructType(request.get("schema").toString());
        Map<String, String> properties = new HashMap<>();
        JsonNode given = request.get("properties");
        given.fieldNames().forEachRemaining(name -> properties.put(name, given.get(name).asText()));
        DataLayoutSpec layout = DataLayoutSpec.noDataLayout();
        if (!request.get("partitioned").isEmpty()) {
            layout = DataLayoutSpec.partitioned(columns(request.get("partitioned")));
        } else if (!request.get("clustered").isEmpty()) {
            layout = DataLayoutSpec.clustered(columns(request.get("clustered")));
        }
        return TableManager.buildCreateTableTransaction(request.get("create").asText(), schema, WRITER)
                .withTableProperties(properties)
                .withDataLayoutSpec(layout)
                .build(engine);
    }

    private static List<Column> columns(JsonNode names) {
        List<Column> columns = new ArrayList<>();
        names.forEach(name -> columns.add(new Column(name.asText())));
        return columns;
    }

    private static UpdateTableTransactionBuilder update(Engine engine, JsonNode place, Operation operation) {
        Snapshot snapshot = TableManager.loadSnapshot(place.asText()).build(engine);
        return snapshot.buildUpdateTableTransaction(WRITER, operation);
    }

    private static Map<String, Object> append(Engine engine, JsonNode request) throws IOException {
        Transaction transaction = update(engine, request.get("append"), Operation.WRITE).build(engine);
        Row state = transaction.getTransactionState(engine);
        StructType schema = transaction.getSchema(engine);
        List<Row> actions = new ArrayList<>();
        for (JsonNode file : request.get("files")) {
            Map<String, Literal> partition = new HashMap<>();
            for (String name : transaction.getPartitionColumns(engine)) {
                JsonNode value = file.get("partition").get(name);
                partition.put(name, literal(new JsonVector(schema.get(name).getDataType(), List.of(value))));
            }
            FilteredColumnarBatch batch = new FilteredColumnarBatch(batch(schema, file.get("rows")), Optional.empty());
            CloseableIterator<FilteredColumnarBatch> physical =
                    Transaction.transformLogicalData(
                            engine, state, Utils.singletonCloseableIterator(batch), partition);
            DataWriteContext context = Transaction.getWriteContext(engine, state, partition);
            CloseableIterator<DataFileStatus> written =
                    engine.getParquetHandler()
                            .writeParquetFiles(context.getTargetDirectory(), physical, context.getStatisticsColumns());
            Transaction.generateAppendActions(engine, state, written, context).forEachRemaining(actions::add);
        }
        CloseableIterator<Row> all = Utils.toCloseableIterator(actions.iterator());
        return committed(engine, transaction, CloseableIterable.inMemoryIterable(all));
    }

    private static Map<String, Object> committed(Engine engine, Transaction transaction, CloseableIterable<Row> actions)
            throws IOException {
        TransactionCommitResult result = transaction.commit(engine, actions);
        for (PostCommitHook hook : result.getPostCommitHooks()) {
            hook.threadSafeInvoke(engine);
        }
        return Map.of("version", result.getVersion());
    }

    private static ColumnarBatch batch(StructType schema, JsonNode rows) {
        ColumnVector[] vectors = new ColumnVector[schema.length()];
        for (int column = 0; column < vectors.length; column++) {
            List<JsonNode> values = new ArrayList<>();
            for (JsonNode row : rows) {
                values.add(row.get(column));
            }
            vectors[column] = new JsonVector(schema.at(column).getDataType(), values);
        }
        return new DefaultColumnarBatch(rows.size(), schema, vectors);
    }

    /** Make a literal of the only value of a vector, for the types that partition the tables of the matrix. */
    private static Literal literal(ColumnVector vector) {
        DataType type = vector.getDataType();
        if (vector.isNullAt(0)) {
            return Literal.ofNull(type);
        } else if (type instanceof IntegerType) {
            return Literal.ofInt(vector.getInt(0));
        } else if (type instanceof StringType) {
            return Literal.ofString(vector.getString(0));
        } else if (type instanceof DateType) {
            return Literal.ofDate(vector.getInt(0));
        } else if (type instanceof TimestampType) {
            return Literal.ofTimestamp(vector.getLong(0));
        }
        throw new AssertionError("This program does not partition by values of type " + type);
    }

    private static List<Object> rows(Engine engine, Snapshot snapshot) throws IOException {
        Scan scan = snapshot.getScanBuilder().build();
        Row state = scan.getScanState(engine);
        List<Object> rows = new ArrayList<>();
        try (CloseableIterator<FilteredColumnarBatch> batches = scan.getScanFiles(engine)) {
            while (batches.hasNext()) {
                try (CloseableIterator<Row> files = batches.next().getRows()) {
                    while (files.hasNext()) {
                        addRowsOfFile(engine, state, files.next(), rows);
                    }
                }
            }
        }
        return rows;
    }

    private static void addRowsOfFile(Engine engine, Row state, Row file, List<Object> rows) throws IOException {
        FileStatus status = InternalScanFileUtils.getAddFileStatus(file);
        StructType physical = ScanStateRow.getPhysicalDataReadSchema(state);
        try (CloseableIterator<FileReadResult> stored =
                        engine.getParquetHandler()
                                .readParquetFiles(
                                        Utils.singletonCloseableIterator(status), physical, Optional.empty());
                CloseableIterator<FilteredColumnarBatch> batches =
                        Scan.transformPhysicalData(engine, state, file, stored.map(FileReadResult::getData))) {
            while (batches.hasNext()) {
                addRowsOfBatch(batches.next(), rows);
            }
        }
    }

    private static void addRowsOfBatch(FilteredColumnarBatch batch, List<Object> rows) {
        ColumnarBatch data = batch.getData();
        Optional<ColumnVector> selected = batch.getSelectionVector();
        for (int at = 0; at < data.getSize(); at++) {
            if (selected.isPresent() && (selected.get().isNullAt(at) || !selected.get().getBoolean(at))) {
                continue;
            }
            List<Object> row = new ArrayList<>();
            for (int column = 0; column < data.getSchema().length(); column++) {
                row.add(value(data.getColumnVector(column), at));
            }
            rows.add(row);
        }
    }

    private static Object value(ColumnVector vector, int at) {
        if (vector.isNullAt(at)) {
            return null;
        }
        DataType type = vector.getDataType();
        if (type instanceof StructType) {
            List<Object> parts = new ArrayList<>();
            for (int part = 0; part < ((StructType) type).length(); part++) {
                parts.add(value(vector.getChild(part), at));
            }
            return parts;
        }
        if (type instanceof ArrayType) {
            ArrayValue array = vector.getArray(at);
            return values(array.getElements(), array.getSize());
        }
        if (type instanceof MapType) {
            MapValue map = vector.getMap(at);
            List<Object> keys = values(map.getKeys(), map.getSize());
            return List.of(keys, values(map.getValues(), map.getSize()));
        }
        return primitive(vector, type, at);
    }

    private static List<Object> values(ColumnVector vector, int size) {
        List<Object> values = new ArrayList<>();
        for (int at = 0; at < size; at++) {
            values.add(value(vector, at));
        }
        return values;
    }

    private static Object primitive(ColumnVector vector, DataType type, int at) {
        if (type instanceof BooleanType) {
            return vector.getBoolean(at);
        } else if (type instanceof ByteType) {
            return vector.getByte(at);
        } else if (type instanceof ShortType) {
            return vector.getShort(at);
        } else if (type instanceof IntegerType || type instanceof DateType) {
            return vector.getInt(at);
        } else if (type instanceof LongType || type instanceof TimestampType || type instanceof TimestampNTZType) {
            return vector.getLong(at);
        } else if (type instanceof FloatType) {
            return (double) vector.getFloat(at);
        } else if (type instanceof DoubleType) {
            return vector.getDouble(at);
        } else if (type instanceof DecimalType) {
            return vector.getDecimal(at).toPlainString();
        } else if (type instanceof StringType) {
            return vector.getString(at);
        } else if (type instanceof BinaryType) {
            return HexFormat.of().formatHex(vector.getBinary(at));
        }
        throw new AssertionError("This program does not print values of type " + type);
    }

    /** Values as the requests have them, in the form in which the kernel asks for them. */
    private static final class JsonVector implements ColumnVector {
        private final DataType type;
        private final List<JsonNode> values;

        JsonVector(DataType type, List<JsonNode> values) {
            this.type = type;
            this.values = values;
        }

        @Override
        public DataType getDataType() {
            return type;
        }

        @Override
        public int getSize() {
            return values.size();
        }

        @Override
        public void close() {}

        @Override
        public boolean isNullAt(int at) {
            return values.get(at).isNull();
        }

        @Override
        public boolean getBoolean(int at) {
            return values.get(at).booleanValue();
        }

        @Override
        public byte getByte(int at) {
            return (byte) values.get(at).intValue();
        }

        @Override
        public short getShort(int at) {
            return values.get(at).shortValue();
        }

        @Override
        public int getInt(int at) {
            return values.get(at).intValue();
        }

        @Override
        public long getLong(int at) {
            return values.get(at).longValue();
        }

        @Override
        public float getFloat(int at) {
            return values.get(at).floatValue();
        }

        @Override
        public double getDouble(int at) {
            return values.get(at).doubleValue();
        }

        @Override
        public byte[] getBinary(int at) {
            return HexFormat.of().parseHex(values.get(at).textValue());
        }

        @Override
        public String getString(int at) {
            return values.get(at).textValue();
        }

        @Override
        public BigDecimal getDecimal(int at) {
            return new BigDecimal(values.get(at).textValue());
        }

        @Override
        public ArrayValue getArray(int at) {
            ColumnVector elements = list(((ArrayType) type).getElementType(), values.get(at));
            return new ArrayValue() {
                @Override
                public int getSize() {
                    return elements.getSize();
                }

                @Override
                public ColumnVector getElements() {
                    return elements;
                }
            };
        }

        @Override
        public MapValue getMap(int at) {
            ColumnVector keys = list(((MapType) type).getKeyType(), values.get(at).get(0));
            ColumnVector items = list(((MapType) type).getValueType(), values.get(at).get(1));
            return new MapValue() {
                @Override
                public int getSize() {
                    return keys.getSize();
                }

                @Override
                public ColumnVector getKeys() {
                    return keys;
                }

                @Override
                public ColumnVector getValues() {
                    return items;
                }
            };
        }

        @Override
        public ColumnVector getChild(int part) {
            List<JsonNode> parts = new ArrayList<>();
            values.forEach(value -> parts.add(value.isNull() ? value : value.get(part)));
            return new JsonVector(((StructType) type).at(part).getDataType(), parts);
        }

        private static ColumnVector list(DataType type, JsonNode items) {
            List<JsonNode> listed = new ArrayList<>();
            items.forEach(listed::add);
            return new JsonVector(type, listed);
        }
    }
}
