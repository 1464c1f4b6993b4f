package org.rockmill;

import org.jspecify.annotations.Nullable;

/** The native part. {@link Loader} has to load it first. */
final class Native {
  private Native() {}

  /** Opens a service. Its handle is closed with {@link #close}. */
  static native long open(String settings);

  static native void close(long service);

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
   * Sets a clone of a service on options. The clone belongs to RocksDB.
   *
   * @param library the mapped library that the options belong to
   * @param shim a file with the part for that version, or null for RocksDB's C API
   */
  static native void attach(long service, long options, String library, @Nullable String shim);

  /**
   * Lets a close of a database return its jobs to RocksDB first, if its version does not report that it closes. The
   * classes are those of {@link Loader}'s list, in its order.
   */
  static native void watchClose(String shim, Class<?>[] databases);
}
