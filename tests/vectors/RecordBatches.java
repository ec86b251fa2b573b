import java.util.HexFormat;
import java.util.Random;
import java.util.StringJoiner;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;

/** Writes record_batches.json: the same records in a batch of each codec, as the Java client writes them. */
public class RecordBatches {
    public static void main(String[] arguments) {
        HexFormat hex = HexFormat.of();
        Random random = new Random(1);
        SimpleRecord[] records = new SimpleRecord[12];
        StringJoiner told = new StringJoiner(",\n    ", "[\n    ", "\n  ]");
        for (int i = 0; i < records.length; i++) {
            byte[] value = i == 5 ? null : new byte[40 + i];
            if (value != null) {
                for (int k = 30; k < value.length; k++) value[k] = (byte) random.nextInt();
            }
            long timestamp = 1_700_000_000_000L + 100 * i * i;
            byte[] key = i % 4 == 1 ? "key".getBytes() : null;
            Header[] headers = i % 5 == 2 ? new Header[] {new RecordHeader("name", new byte[] {1}), new RecordHeader("none", null)} : new Header[0];
            records[i] = new SimpleRecord(timestamp, key, value, headers);
            told.add("[" + (1000 + i) + ", " + timestamp + ", \"" + (value == null ? "" : hex.formatHex(value)) + "\"]");
        }
        StringJoiner batches = new StringJoiner(",\n    ", "{\n    ", "\n  }");
        for (String codec : new String[] {"none", "gzip", "snappy", "lz4", "zstd"}) {
            MemoryRecords batch = MemoryRecords.withRecords(1000L, Compression.of(codec).build(), records);
            byte[] bytes = new byte[batch.sizeInBytes()];
            batch.buffer().duplicate().get(bytes);
            batches.add("\"" + codec + "\": \"" + hex.formatHex(bytes) + "\"");
        }
        System.out.println("{\n  \"with_key_or_headers\": 5,\n  \"records\": " + told + ",\n  \"batches\": " + batches + "\n}");
    }
}
