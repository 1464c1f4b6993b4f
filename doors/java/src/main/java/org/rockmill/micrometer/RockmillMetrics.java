package org.rockmill.micrometer;

import io.micrometer.core.instrument.FunctionCounter;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.binder.MeterBinder;
import java.util.function.ToDoubleFunction;
import org.rockmill.Rockmill;
import org.rockmill.RockmillStats;

/**
 * Binds the counters of a service to a Micrometer registry.
 *
 * <pre>{@code
 * new RockmillMetrics(rockmill).bindTo(registry);
 * }</pre>
 *
 * <p>Meters are named {@code rockmill.jobs.done}, {@code rockmill.read} and so on; each has its unit. The registry has no strong
 * reference to the service, so keep one.
 */
public final class RockmillMetrics implements MeterBinder {
  private final Rockmill rockmill;

  /**
   * Makes a binder.
   *
   * @param rockmill the service
   */
  public RockmillMetrics(Rockmill rockmill) {
    this.rockmill = rockmill;
  }

  @Override
  public void bindTo(MeterRegistry registry) {
    counter(registry, "jobs.offered", "jobs", "Compactions that RocksDB offered", RockmillStats::jobsOffered);
    counter(registry, "jobs.done", "jobs", "Compactions that Rockmill did", RockmillStats::jobsDone);
    counter(registry, "jobs.declined", "jobs", "Compactions that were left to RocksDB", RockmillStats::jobsDeclined);
    counter(registry, "jobs.failed", "jobs", "Compactions that RocksDB did after an error", RockmillStats::jobsFailed);
    counter(registry, "read", "bytes", "Bytes that compactions done read", RockmillStats::readBytes);
    counter(registry, "written", "bytes", "Bytes that compactions done wrote", RockmillStats::writtenBytes);
    counter(registry, "job.time", "seconds", "Wall time of compactions done", RockmillStats::jobSeconds);
    counter(registry, "job.cpu", "seconds", "CPU time of compactions done", RockmillStats::jobCpuSeconds);
    gauge(registry, "jobs.running", "jobs", "Compactions that run or wait", RockmillStats::jobsRunning);
    gauge(registry, "backlog", "bytes", "Input of running compactions", RockmillStats::backlogBytes);
    gauge(registry, "held", "bytes", "Native memory of running compactions", RockmillStats::heldBytes);
  }

  private void counter(
      MeterRegistry registry, String name, String unit, String what, ToDoubleFunction<RockmillStats> value) {
    FunctionCounter.builder("rockmill." + name, rockmill, of -> value.applyAsDouble(of.stats()))
        .baseUnit(unit)
        .description(what)
        .register(registry);
  }

  private void gauge(
      MeterRegistry registry, String name, String unit, String what, ToDoubleFunction<RockmillStats> value) {
    Gauge.builder("rockmill." + name, rockmill, of -> value.applyAsDouble(of.stats()))
        .baseUnit(unit)
        .description(what)
        .register(registry);
  }
}
