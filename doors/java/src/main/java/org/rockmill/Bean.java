package org.rockmill;

import java.lang.System.Logger.Level;
import java.lang.management.ManagementFactory;
import java.util.Map;
import java.util.UUID;
import java.util.function.Supplier;
import javax.management.JMException;
import javax.management.ObjectName;
import org.jspecify.annotations.Nullable;

/** The bean of a service. */
final class Bean implements RockmillMXBean {
  private static int made;

  private final Supplier<RockmillStats> stats;

  private Bean(Supplier<RockmillStats> stats) {
    this.stats = stats;
  }

  /** Returns the name of a new bean, or null if JMX does not take it. */
  static synchronized @Nullable ObjectName register(Supplier<RockmillStats> stats) {
    try {
      // Several class loaders may have this class.
      String id = Integer.toString(made++);
      ObjectName name = new ObjectName("org.rockmill:type=Rockmill,id=" + id);
      if (ManagementFactory.getPlatformMBeanServer().isRegistered(name)) {
        name = new ObjectName("org.rockmill:type=Rockmill,id=" + UUID.randomUUID());
      }
      ManagementFactory.getPlatformMBeanServer().registerMBean(new Bean(stats), name);
      return name;
    } catch (JMException | RuntimeException | LinkageError error) {
      System.getLogger("org.rockmill").log(Level.INFO, "Rockmill has no bean in JMX: " + error);
      return null;
    }
  }

  static void unregister(@Nullable ObjectName name) {
    if (name == null) return;
    try {
      ManagementFactory.getPlatformMBeanServer().unregisterMBean(name);
    } catch (JMException | RuntimeException error) {
      // Another has unregistered it.
    }
  }

  @Override
  public long getJobsOffered() {
    return stats.get().jobsOffered();
  }

  @Override
  public long getJobsDone() {
    return stats.get().jobsDone();
  }

  @Override
  public long getJobsDeclined() {
    return stats.get().jobsDeclined();
  }

  @Override
  public long getJobsFailed() {
    return stats.get().jobsFailed();
  }

  @Override
  public Map<String, Long> getJobsDeclinedByReason() {
    return stats.get().jobsDeclinedByReason();
  }

  @Override
  public long getJobsRunning() {
    return stats.get().jobsRunning();
  }

  @Override
  public long getBacklogBytes() {
    return stats.get().backlogBytes();
  }

  @Override
  public long getReadBytes() {
    return stats.get().readBytes();
  }

  @Override
  public long getWrittenBytes() {
    return stats.get().writtenBytes();
  }

  @Override
  public long getHeldBytes() {
    return stats.get().heldBytes();
  }

  @Override
  public long getPeakHeldBytes() {
    return stats.get().peakHeldBytes();
  }

  @Override
  public double getJobSeconds() {
    return stats.get().jobSeconds();
  }

  @Override
  public double getJobCpuSeconds() {
    return stats.get().jobCpuSeconds();
  }

  @Override
  public @Nullable String getLastError() {
    return stats.get().lastError();
  }

  @Override
  public String getJson() {
    return stats.get().toJson();
  }
}
