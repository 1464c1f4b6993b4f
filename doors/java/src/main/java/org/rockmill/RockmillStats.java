package org.rockmill;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * The work that a service has done, over all of its databases, when {@link Rockmill#stats} was called. All counts begin with
 * the service. {@link #toJson} has what no method here has.
 */
public final class RockmillStats {
  /** The statistics of a service that does nothing. */
  public static final RockmillStats NONE = new RockmillStats("{}");

  private final String json;
  private final Map<String, @Nullable Object> fields;

  RockmillStats(String json) {
    this.json = json;
    fields = Json.object(json);
  }

  /** Returns the number of compactions that RocksDB has offered. */
  public long jobsOffered() {
    return count("jobs_offered");
  }

  /** Returns the number of compactions that Rockmill has done. */
  public long jobsDone() {
    return count("jobs_done");
  }

  /** Returns the number of compactions that RocksDB has done itself because Rockmill does not do such ones. */
  public long jobsDeclined() {
    return count("jobs_declined");
  }

  /** Returns the number of compactions that RocksDB has done itself after an error of Rockmill. */
  public long jobsFailed() {
    return count("jobs_failed");
  }

  /** Returns the number of declined compactions for each reason that has any. */
  public Map<String, Long> jobsDeclinedByReason() {
    return counts("jobs_declined_by_reason");
  }

  /** Returns the number of failed compactions for each kind of error that has any. */
  public Map<String, Long> jobsFailedByError() {
    return counts("jobs_failed_by_error");
  }

  /** Returns the number of compactions that run or wait for a thread now. */
  public long jobsRunning() {
    return count("jobs_running");
  }

  /** Returns the input of the compactions that run now, in bytes. */
  public long backlogBytes() {
    return count("backlog_bytes");
  }

  /** Returns the bytes that compactions done have read from files. */
  public long readBytes() {
    return count("read_bytes");
  }

  /** Returns the bytes of the files that compactions done have written. */
  public long writtenBytes() {
    return count("written_bytes");
  }

  /** Returns the number of entries that compactions done have read. */
  public long entriesRead() {
    return count("entries_read");
  }

  /** Returns the number of entries that compactions done have written. */
  public long entriesWritten() {
    return count("entries_written");
  }

  /** Returns the number of files that compactions done have written. */
  public long filesWritten() {
    return count("files_written");
  }

  /** Returns the native memory that running compactions hold, in bytes. {@code memory_budget_bytes} limits it. */
  public long heldBytes() {
    return count("subcompactions_held_bytes");
  }

  /** Returns the most of {@link #heldBytes} so far, in bytes. */
  public long peakHeldBytes() {
    return count("subcompactions_peak_held_bytes");
  }

  /** Returns the wall time of compactions done, in seconds. */
  public double jobSeconds() {
    return seconds("job_seconds");
  }

  /** Returns the CPU time of compactions done over all of their threads, in seconds. */
  public double jobCpuSeconds() {
    return seconds("job_cpu_seconds");
  }

  /** Returns the number of compactions done of which the CPU did some or all, since a configured device could not. */
  public long jobsRedoneByCpu() {
    return count("jobs_redone_by_cpu");
  }

  /** Returns why the configured device cannot be used, in one sentence; null if that is not so. */
  public @Nullable String deviceTrouble() {
    return (String) fields.get("device_trouble");
  }

  /** Returns the last error or decline in one sentence, or null if there was none. */
  public @Nullable String lastError() {
    return (String) fields.get("last_error");
  }

  /**
   * Returns the counts that monitoring shows, by their names: those of the methods {@link #jobsOffered}, {@link #jobsDone},
   * {@link #jobsDeclined}, {@link #jobsFailed}, {@link #readBytes}, {@link #writtenBytes}, {@link #jobSeconds}, {@link
   * #jobCpuSeconds}, {@link #jobsRunning}, {@link #backlogBytes} and {@link #heldBytes}.
   */
  public Map<String, Number> byName() {
    Map<String, Number> made = new LinkedHashMap<>();
    made.put("jobsOffered", jobsOffered());
    made.put("jobsDone", jobsDone());
    made.put("jobsDeclined", jobsDeclined());
    made.put("jobsFailed", jobsFailed());
    made.put("readBytes", readBytes());
    made.put("writtenBytes", writtenBytes());
    made.put("jobSeconds", jobSeconds());
    made.put("jobCpuSeconds", jobCpuSeconds());
    made.put("jobsRunning", jobsRunning());
    made.put("backlogBytes", backlogBytes());
    made.put("heldBytes", heldBytes());
    return made;
  }

  /** Returns all counters as JSON: {@code {}} if the service does nothing or is closed. */
  public String toJson() {
    return json;
  }

  @Override
  public String toString() {
    return json;
  }

  private long count(String name) {
    Object found = field(name);
    return found == null ? 0 : (Long) found;
  }

  private double seconds(String name) {
    // The sum is null before the first compaction.
    Object sum = object(name).get("sum_s");
    return sum == null ? 0 : ((Number) sum).doubleValue();
  }

  private Map<String, Long> counts(String name) {
    Map<String, Long> made = new LinkedHashMap<>();
    object(name).forEach((key, value) -> made.put(key, (Long) value));
    return made;
  }

  @SuppressWarnings("unchecked")
  private Map<String, @Nullable Object> object(String name) {
    Object found = field(name);
    return found == null ? Collections.emptyMap() : (Map<String, @Nullable Object>) found;
  }

  private @Nullable Object field(String name) {
    // The jar contains the library, so that its statistics have all names that are asked for.
    if (!fields.isEmpty() && !fields.containsKey(name)) {
      throw new IllegalStateException("Rockmill's statistics have no " + name);
    }
    return fields.get(name);
  }
}
