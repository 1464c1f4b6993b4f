import static org.apache.spark.sql.functions.*;

import java.nio.file.Path;
import java.util.*;
import org.apache.spark.sql.*;
import org.apache.spark.sql.streaming.*;

/**
 * A query of Spark's Structured Streaming with a RocksDB state store, which knows nothing of Rockmill. Its result is known:
 * arguments are the number of batches, the folder of its checkpoint, and a local folder.
 */
public final class Query {
  private static final long ROWS = 250_000;
  private static final int PARTITIONS = 3;
  private static final int DIGITS = 12;

  public static void main(String[] arguments) throws Exception {
    long batches = Long.parseLong(arguments[0]);
    if (arguments.length == 1) {
      System.out.println(model(batches));
      return;
    }
    SparkSession spark =
        SparkSession.builder()
            .master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.local.dir", arguments[2])
            .config("spark.sql.warehouse.dir", arguments[2])
            .config("spark.sql.shuffle.partitions", PARTITIONS)
            .config(
                "spark.sql.streaming.stateStore.providerClass",
                "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
            .getOrCreate();
    Dataset<Row> rows =
        spark
            .readStream()
            .format("rate-micro-batch")
            .option("rowsPerBatch", ROWS)
            .option("numPartitions", 2)
            .load()
            .withColumn("key", pmod(col("value").multiply(7919), lit(batches * ROWS / 3)));
    Dataset<Row> grouped =
        rows.groupBy("key")
            .agg(
                count(lit(1)),
                max(concat(lpad(col("value").cast("string"), DIGITS, "0"), sha2(col("value").cast("string"), 512))));
    StreamingQuery query =
        grouped
            .writeStream()
            .outputMode("update")
            .option("checkpointLocation", Path.of(arguments[1]).toUri().toString())
            .format("noop")
            .start();
    double commit = 0;
    long read = 0;
    double stall = 0;
    long last = -1;
    while (last < batches - 1) {
      Thread.sleep(50);
      for (StreamingQueryProgress progress : query.recentProgress()) {
        if (progress.batchId() <= last || progress.stateOperators().length == 0) continue;
        last = progress.batchId();
        // The times of all partitions.
        for (Map.Entry<String, Long> metric : progress.stateOperators()[0].customMetrics().entrySet()) {
          if (metric.getKey().startsWith("rocksdbCommit")) commit += metric.getValue() / 1e3;
          if (metric.getKey().equals("rocksdbTotalBytesReadByCompaction")) read += metric.getValue();
          if (metric.getKey().equals("rocksdbWriterStallLatencyMs")) stall += metric.getValue() / 1e3;
        }
        Measure.put("compaction_read_bytes", read);
        Measure.put("stall_s", stall);
        Measure.put("progress", (last + 1.0) / batches);
        Measure.put("commit_s", commit);
      }
      if (query.exception().isDefined()) throw query.exception().get();
    }
    query.stop();
    // The query may have gone beyond the last batch.
    Dataset<Row> state =
        spark
            .read()
            .format("statestore")
            .option("batchId", batches - 1)
            .load(Path.of(arguments[1]).toUri().toString());
    Measure.put("batch", last);
    Measure.put("digest", digest(state));
    Measure.write();
    System.out.println("done");
    System.exit(0);
  }

  private static long mix(long key, long count, long last) {
    return (key * 31 + count ^ last * 0x100000001B3L) % 1_000_000_007L;
  }

  private static long digest(Dataset<Row> state) {
    long sum = 0;
    Iterator<Row> all = state.select("key.key", "value.count", "value.max").toLocalIterator();
    while (all.hasNext()) {
      Row row = all.next();
      sum += mix(row.getLong(0), row.getLong(1), Long.parseLong(row.getString(2).substring(0, DIGITS)));
    }
    return sum;
  }

  private static long model(long batches) {
    Map<Long, long[]> groups = new HashMap<>();
    long keys = batches * ROWS / 3;
    for (long value = 0; value < batches * ROWS; ++value) {
      long[] group = groups.computeIfAbsent(Math.floorMod(value * 7919, keys), key -> new long[2]);
      ++group[0];
      group[1] = value;
    }
    long sum = 0;
    for (Map.Entry<Long, long[]> group : groups.entrySet()) {
      sum += mix(group.getKey(), group.getValue()[0], group.getValue()[1]);
    }
    return sum;
  }

  static {
    String file = System.getProperty("measure");
    if (file != null) Measure.start(Path.of(file));
  }
}
