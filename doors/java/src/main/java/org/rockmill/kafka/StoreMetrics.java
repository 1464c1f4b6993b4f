package org.rockmill.kafka;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.metrics.Gauge;
import org.apache.kafka.common.metrics.JmxReporter;
import org.apache.kafka.common.metrics.KafkaMetricsContext;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.common.utils.Utils;
import org.rockmill.Rockmill;

/**
 * The counters of the service for Kafka's reporters of metrics, as the group {@code rockmill-metrics} of each application.
 * Kafka Streams gives a setter none of its own metrics, so these are in a registry beside them, for as long as the
 * application has stores.
 */
final class StoreMetrics {
  private static final String GROUP = "rockmill-metrics";
  private static final String REPORTERS = "metric.reporters";
  /** Kafka before 4.0 has it, and then its list of reporters has none for JMX. */
  private static final String WITH_JMX = "auto.include.jmx.reporter";
  private static final ConfigDef KNOWN =
      new ConfigDef()
          .define(REPORTERS, ConfigDef.Type.LIST, JmxReporter.class.getName(), ConfigDef.Importance.LOW, "")
          .define(WITH_JMX, ConfigDef.Type.BOOLEAN, false, ConfigDef.Importance.LOW, "");

  /** By application. */
  private static final Map<String, StoreMetrics> ALL = new HashMap<>();

  private final Metrics metrics = new Metrics();
  private int stores;

  private StoreMetrics(String application, Map<String, Object> configs, Rockmill rockmill) {
    List<MetricsReporter> reporters = new ArrayList<>();
    try {
      register(application, configs, rockmill, reporters);
    } catch (RuntimeException | LinkageError error) {
      // Other stores of the application would fail alike, so they share this one, without metrics.
      metrics.close();
      for (MetricsReporter reporter : reporters) Utils.closeQuietly(reporter, "a reporter of metrics");
      RockmillConfigSetter.sayOnce("Kafka's metrics have no counters of Rockmill: " + error);
    }
  }

  private void register(
      String application, Map<String, Object> configs, Rockmill rockmill, List<MetricsReporter> reporters) {
    AbstractConfig known = new AbstractConfig(KNOWN, configs, false);
    reporters.addAll(known.getConfiguredInstances(REPORTERS, MetricsReporter.class));
    if (known.getBoolean(WITH_JMX) && reporters.stream().noneMatch(JmxReporter.class::isInstance)) {
      reporters.add(new JmxReporter());
      reporters.get(reporters.size() - 1).configure(configs);
    }
    for (MetricsReporter reporter : reporters) {
      reporter.contextChange(new KafkaMetricsContext("kafka.streams"));
      metrics.addReporter(reporter);
    }
    for (String name : rockmill.stats().byName().keySet()) {
      metrics.addMetric(
          metrics.metricName(kebab(name), GROUP, "see RockmillStats." + name, "application-id", application),
          (Gauge<Number>) (config, now) -> rockmill.stats().byName().getOrDefault(name, 0));
    }
  }

  /** Returns a name as Kafka writes those of its metrics. */
  private static String kebab(String name) {
    return name.replaceAll("([A-Z])", "-$1").toLowerCase(Locale.ROOT);
  }

  /** Counts another store of an application. Returns the application for {@link #leave}. */
  static synchronized String enter(Map<String, Object> configs, Rockmill rockmill) {
    String application = String.valueOf(configs.get("application.id"));
    StoreMetrics known = ALL.get(application);
    if (known == null) {
      known = new StoreMetrics(application, configs, rockmill);
      ALL.put(application, known);
    }
    ++known.stores;
    return application;
  }

  /** Counts a closed store of an application. */
  static synchronized void leave(String application) {
    StoreMetrics known = ALL.get(application);
    if (known == null || --known.stores > 0) return;
    ALL.remove(application);
    known.metrics.close();
  }
}
