package org.rockmill;

import org.jspecify.annotations.Nullable;

/** The native part. {@link Loader} has to load it first. */
final class Native {
  private Native() {}

  /** Opens a service. Its handle is closed with {@link #close}. */
  static native long open(String settings);

  static native void close(long service);

  /** Returns the jobs of a clone to RocksDB. A handle that is closed does no harm. */
  static native void cancelJobs(long clone);

  static native String stats(long service);

  /** Returns the last error or decline, or null. */
  static native @Nullable String lastError(long service);

  static native void changeSettings(long service, String settings);

  static native void waitForDevice(long service);

  /** Returns the paths of the libraries of RocksJava that are mapped, one a line. */
  static native String libraries();

  /** Returns the version of a mapped library as a number, major first, a byte for each of the three parts. */
  static native int version(String library);

  /**
   * Sets a clone of a service on options. Returns the clone's handle, which belongs to RocksDB, or 0 if RocksDB says itself
   * that a database closes.
   *
   * @param library the mapped library that the options belong to
   * @param shim a file with the part for that version, or null for RocksDB's C API
   */
  static native long attach(long service, long options, String library, @Nullable String shim);
}
