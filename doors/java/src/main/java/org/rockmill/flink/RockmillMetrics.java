package org.rockmill.flink;

import org.apache.flink.metrics.Gauge;
import org.apache.flink.metrics.MetricGroup;
import org.rockmill.RockmillStats;

/**
 * The counters of {@link RockmillOptionsFactory}'s service among Flink's metrics. Flink gives an options factory no metrics,
 * so a job calls this from {@code open} of one of its functions:
 *
 * <pre>{@code
 * RockmillMetrics.register(getRuntimeContext().getMetricGroup());
 * }</pre>
 */
public final class RockmillMetrics {
  private RockmillMetrics() {}

  /**
   * Adds the group {@code rockmill} with a gauge for each count of {@link RockmillStats#byName}. The counts are those of the
   * whole process, and 0 without a service.
   *
   * @param parent the group to add it to
   */
  public static void register(MetricGroup parent) {
    MetricGroup group = parent.addGroup("rockmill");
    for (String name : RockmillOptionsFactory.stats().byName().keySet()) {
      group.gauge(name, (Gauge<Number>) () -> RockmillOptionsFactory.stats().byName().get(name));
    }
  }
}
