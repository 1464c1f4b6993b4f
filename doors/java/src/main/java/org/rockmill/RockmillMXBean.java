package org.rockmill;

import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * The work of a service for JMX, as {@code org.rockmill:type=Rockmill,id=N}; see {@link RockmillStats} for each attribute. A
 * service has a bean from its start until it is closed. A {@linkplain Rockmill#shared shared} service has one only in the
 * application's class loader: a bean would keep another class loader from going.
 */
public interface RockmillMXBean {
  /** Returns the number of compactions that RocksDB has offered. */
  long getJobsOffered();

  /** Returns the number of compactions that Rockmill has done. */
  long getJobsDone();

  /** Returns the number of compactions that were left to RocksDB. */
  long getJobsDeclined();

  /** Returns the number of compactions that RocksDB has done after an error of Rockmill. */
  long getJobsFailed();

  /** Returns the number of declined compactions for each reason that has any. */
  Map<String, Long> getJobsDeclinedByReason();

  /** Returns the number of compactions that run or wait for a thread now. */
  long getJobsRunning();

  /** Returns the input of the compactions that run now, in bytes. */
  long getBacklogBytes();

  /** Returns the bytes that compactions done have read. */
  long getReadBytes();

  /** Returns the bytes that compactions done have written. */
  long getWrittenBytes();

  /** Returns the native memory that running compactions hold, in bytes. */
  long getHeldBytes();

  /** Returns the most of {@link #getHeldBytes} so far, in bytes. */
  long getPeakHeldBytes();

  /** Returns the wall time of compactions done, in seconds. */
  double getJobSeconds();

  /** Returns the CPU time of compactions done, in seconds. */
  double getJobCpuSeconds();

  /** Returns the last error or decline in one sentence, or null. */
  @Nullable String getLastError();

  /** Returns all counters as JSON. */
  String getJson();
}
