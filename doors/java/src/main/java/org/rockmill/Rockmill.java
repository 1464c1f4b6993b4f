package org.rockmill;

import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import javax.management.ObjectName;
import org.jspecify.annotations.Nullable;
import org.rocksdb.ColumnFamilyDescriptor;
import org.rocksdb.DBOptions;
import org.rocksdb.Options;
import org.rocksdb.RocksObject;

/**
 * A service that does the compactions of RocksDB databases of this process.
 *
 * <pre>{@code
 * try (Rockmill rockmill = Rockmill.builder().device("auto").threads(8).build()) {
 *   rockmill.attach(options);
 *   ..
 * }
 * }</pre>
 *
 * <p>RocksDB offers each compaction to the service, and does those itself that the service declines. Databases stay
 * ordinary ones, which any program can open without Rockmill. One service serves any number of databases. All methods may
 * be called from any thread.
 *
 * <p>On other systems than Linux on x86-64 with glibc the service does nothing, and says so once: see {@link #isActive}.
 */
public final class Rockmill implements AutoCloseable {
  private static final System.Logger LOGGER = System.getLogger("org.rockmill");

  /** Services of the whole process, by their settings. */
  private static final Map<String, Rockmill> SHARED = new HashMap<>();

  private static boolean hasWarned;

  /** 0 if the service does nothing, or is closed. */
  private long handle;

  private boolean isClosed;

  private final boolean isShared;

  private final @Nullable ObjectName bean;

  private Rockmill(long handle, boolean isShared) {
    this.handle = handle;
    this.isShared = isShared;
    boolean hasBean = handle != 0 && (!isShared || isOfApplication());
    bean = hasBean ? Bean.register(this::stats) : null;
  }

  /** Returns whether this class exists as long as the process. */
  private static boolean isOfApplication() {
    ClassLoader own = Rockmill.class.getClassLoader();
    for (ClassLoader loader = ClassLoader.getSystemClassLoader(); loader != null; loader = loader.getParent()) {
      if (loader == own) return true;
    }
    return false;
  }

  /** Returns a builder with the default settings. */
  public static Builder builder() {
    return new Builder();
  }

  /**
   * Returns the service of these settings that the whole process shares, and opens it with the first call. It is not closed,
   * and {@link #close} does nothing to it.
   *
   * @param settings names and values, as for {@link Builder#set(String, String)}
   * @return the service
   * @throws RockmillException if a setting is not possible or the native part cannot be loaded
   */
  public static Rockmill shared(Map<String, String> settings) {
    synchronized (SHARED) {
      Builder builder = builder();
      settings.forEach(builder::set);
      Rockmill known = SHARED.get(builder.settings.text());
      if (known != null) return known;
      Rockmill opened = builder.build(true);
      SHARED.put(builder.settings.text(), opened);
      return opened;
    }
  }

  /** Settings of a service. The guide to settings lists them all, with their units and defaults. */
  public static final class Builder {
    private final Settings settings = new Settings();

    private Builder() {}

    /**
     * Sets a setting by its name.
     *
     * @param name such as {@code memory_budget_bytes}
     * @param value its text, without {@code ;}
     * @return this
     */
    public Builder set(String name, String value) {
      settings.set(name, value);
      return this;
    }

    /**
     * Sets several settings, as {@code key=value} with {@code ;} or {@code ,} between them.
     *
     * @param text such as {@code device=auto,threads=8}; may be null or empty
     * @return this
     */
    public Builder set(@Nullable String text) {
      if (text != null) settings.setAll(text);
      return this;
    }

    /**
     * Sets the device: {@code cpu}, {@code auto}, {@code cuda:0}.
     *
     * @param device its name
     * @return this
     */
    public Builder device(String device) {
      return set("device", device);
    }

    /**
     * Sets the number of subcompactions that run at once on each device, over all databases.
     *
     * @param threads from 1 to 1024
     * @return this
     */
    public Builder threads(int threads) {
      return set("threads", Integer.toString(threads));
    }

    /**
     * Sets the host memory of all compactions. It is outside of the Java heap.
     *
     * @param bytes at least 32 MiB
     * @return this
     */
    public Builder memoryBudgetBytes(long bytes) {
      return set("memory_budget_bytes", Long.toString(bytes));
    }

    /**
     * Sets the input below which a compaction is left to RocksDB.
     *
     * @param bytes 0 takes every compaction
     * @return this
     */
    public Builder minJobBytes(long bytes) {
      return set("min_job_bytes", Long.toString(bytes));
    }

    /**
     * Opens the service.
     *
     * @return the service, which has to be closed
     * @throws RockmillException if a setting is not possible, or the native part cannot be loaded on a system that it is
     *     for
     */
    public Rockmill build() {
      return build(false);
    }

    private Rockmill build(boolean isShared) {
      String unsupported = Loader.load();
      if (unsupported != null) {
        warnOnce(unsupported + ", so RocksDB does all compactions itself");
        return new Rockmill(0, isShared);
      }
      return new Rockmill(Native.open(settings.text()), isShared);
    }
  }

  private static synchronized void warnOnce(String what) {
    if (!hasWarned) LOGGER.log(System.Logger.Level.WARNING, what);
    hasWarned = true;
  }

  /** Returns whether the service does compactions, which it does on Linux on x86-64 with glibc until it is closed. */
  public synchronized boolean isActive() {
    return handle != 0;
  }

  /**
   * Lets the service do the compactions of databases that are opened with these options later. It has no effect on open
   * databases.
   *
   * <p>From RocksDB 10.10 on, a service that other code than Rockmill has set on the options is replaced.
   *
   * <p>Give each database options of its own: databases that are opened with the same options share a clone of the
   * service, and when one of them closes, the jobs of all are returned to RocksDB.
   *
   * @param options options that are not closed
   * @throws RockmillException if the RocksDB of this program is not one that Rockmill serves, or the options already have
   *     a service, an {@code Env} of the program, {@code db_paths} or {@code cf_paths}; the options are then as they were
   */
  public void attach(Options options) {
    attachTo(options, List.of());
  }

  /**
   * The same for databases with several column families. None of them may have {@code cf_paths}, which {@link
   * #attach(DBOptions, List)} checks: if these are on another file system, RocksDB stops writes.
   *
   * @param options options that are not closed
   * @throws RockmillException as {@link #attach(Options)}
   */
  public void attach(DBOptions options) {
    attachTo(options, List.of());
  }

  /**
   * The same, and checks the column families as well.
   *
   * @param options options that are not closed
   * @param families the column families that the database is opened with
   * @throws RockmillException as {@link #attach(Options)}
   */
  public void attach(DBOptions options, List<ColumnFamilyDescriptor> families) {
    attachTo(options, families);
  }

  private synchronized void attachTo(RocksObject options, Collection<?> families) {
    if (isClosed) throw new RockmillException("this Rockmill is closed");
    if (handle != 0) Loader.attach(handle, options, families, null);
  }

  /** Returns the work done so far, over all databases. */
  public synchronized RockmillStats stats() {
    return handle == 0 ? RockmillStats.NONE : new RockmillStats(Native.stats(handle));
  }

  /** Returns the last error or decline in one sentence, or null if there was none. */
  public synchronized @Nullable String lastError() {
    return handle == 0 ? null : Native.lastError(handle);
  }

  /**
   * Changes settings while databases are open. If one of them is not possible, none changes.
   *
   * @param settings names and values, as for {@link Builder#set(String, String)}
   * @throws RockmillException if one is not possible or cannot be changed
   */
  public synchronized void changeSettings(Map<String, String> settings) {
    Settings checked = new Settings();
    settings.forEach(checked::set);
    if (handle != 0) Native.changeSettings(handle, checked.text());
  }

  /**
   * Waits until the devices of the settings are open. Before that the CPU does all compactions.
   *
   * @throws RockmillException if a device that the settings name cannot be used
   */
  public void waitForDevice() {
    long open;
    synchronized (this) {
      open = handle;
    }
    if (open != 0) Native.waitForDevice(open);
  }

  /**
   * Closes the service. Databases that are open keep it until they are closed, so they may be closed before or after it.
   */
  @Override
  public synchronized void close() {
    if (isShared || isClosed) return;
    isClosed = true;
    Bean.unregister(bean);
    if (handle != 0) Native.close(handle);
    handle = 0;
  }
}
