package org.rockmill;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The work that a service has done, over all of its databases, when {@link Rockmill#stats} was called. */
public final class RockmillStats {
  private static final Pattern COUNT = Pattern.compile("\"([^\"]+)\":(\\d+)");

  private final String json;

  RockmillStats(String json) {
    this.json = json;
  }

  /** Returns the number of compactions that RocksDB has offered. */
  public long jobsScheduled() {
    return count("jobs_scheduled");
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
  public long bytesRead() {
    return count("bytes_read");
  }

  /** Returns the bytes that finished compactions have written. */
  public long bytesWritten() {
    return count("bytes_written");
  }

  /** Returns the CPU time of finished compactions in microseconds. */
  public long cpuMicros() {
    return count("cpu_micros");
  }

  /** Returns the number of declined compactions for each reason. */
  public Map<String, Long> declines() {
    Map<String, Long> declines = new LinkedHashMap<>();
    int begin = json.indexOf("\"declines\":{");
    if (begin < 0) return declines;
    begin = json.indexOf('{', begin);
    Matcher counts = COUNT.matcher(json).region(begin, json.indexOf('}', begin));
    while (counts.find()) declines.put(counts.group(1), Long.parseLong(counts.group(2)));
    return declines;
  }

  private long count(String name) {
    Matcher counts = COUNT.matcher(json);
    while (counts.find()) {
      if (counts.group(1).equals(name)) return Long.parseLong(counts.group(2));
    }
    return 0;
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
