package org.rockmill;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The work that a service has done, over all of its databases, when {@link Rockmill#stats} was called. */
public final class RockmillStats {
  private static final Pattern COUNT = Pattern.compile("\"([^\"]+)\":(\\d+)");
  // The sum is null before the first compaction.
  private static final Pattern CPU_SECONDS =
      Pattern.compile("\"job_cpu_seconds\":\\{[^}]*\"sum_s\":([0-9.eE+-]+)");

  private final String json;

  RockmillStats(String json) {
    this.json = json;
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

  /** Returns the bytes that finished compactions have read. */
  public long readBytes() {
    return count("read_bytes");
  }

  /** Returns the bytes that finished compactions have written. */
  public long writtenBytes() {
    return count("written_bytes");
  }

  /** Returns the CPU time of finished compactions in seconds. */
  public double jobCpuSeconds() {
    Matcher sum = CPU_SECONDS.matcher(json);
    return sum.find() ? Double.parseDouble(sum.group(1)) : 0;
  }

  /** Returns the number of declined compactions for each reason. */
  public Map<String, Long> jobsDeclinedByReason() {
    Map<String, Long> declined = new LinkedHashMap<>();
    String name = "\"jobs_declined_by_reason\":{";
    int begin = json.indexOf(name);
    if (begin < 0) throw missing(name);
    begin += name.length();
    Matcher counts = COUNT.matcher(json).region(begin, json.indexOf('}', begin));
    while (counts.find()) declined.put(counts.group(1), Long.parseLong(counts.group(2)));
    return declined;
  }

  private long count(String name) {
    Matcher counts = COUNT.matcher(json);
    while (counts.find()) {
      if (counts.group(1).equals(name)) return Long.parseLong(counts.group(2));
    }
    throw missing(name);
  }

  /** The jar contains the library, so that its statistics have all names that are asked for. */
  private static IllegalStateException missing(String name) {
    return new IllegalStateException("Rockmill's statistics have no " + name);
  }

  /** Returns all counters as JSON. */
  public String toJson() {
    return json;
  }

  @Override
  public String toString() {
    return json;
  }
}
