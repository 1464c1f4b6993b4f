package org.rockmill.agent;

import static net.bytebuddy.matcher.ElementMatchers.isPublic;
import static net.bytebuddy.matcher.ElementMatchers.isStatic;
import static net.bytebuddy.matcher.ElementMatchers.named;
import static net.bytebuddy.matcher.ElementMatchers.namedOneOf;
import static net.bytebuddy.matcher.ElementMatchers.nameStartsWith;
import static net.bytebuddy.matcher.ElementMatchers.not;
import static net.bytebuddy.matcher.ElementMatchers.takesArgument;
import static net.bytebuddy.matcher.ElementMatchers.takesNoArguments;

import java.lang.instrument.Instrumentation;
import net.bytebuddy.agent.builder.AgentBuilder;
import net.bytebuddy.asm.Advice;

/** Makes every {@code open} of RocksJava that can compact call {@link org.rockmill.AgentHook} first. */
public final class Transform {
  private Transform() {}

  /**
   * Installs it, also in classes that are loaded already.
   *
   * @param instrumentation of the JVM
   */
  public static void install(Instrumentation instrumentation) {
    new AgentBuilder.Default()
        .with(AgentBuilder.RedefinitionStrategy.RETRANSFORMATION)
        .disableClassFormatChanges()
        .ignore(not(nameStartsWith("org.rocksdb.")))
        .type(
            namedOneOf(
                "org.rocksdb.RocksDB",
                "org.rocksdb.TtlDB",
                "org.rocksdb.TransactionDB",
                "org.rocksdb.OptimisticTransactionDB"))
        .transform(
            (builder, type, loader, module, domain) ->
                builder.visit(
                    Advice.to(BeforeOpen.class)
                        .on(
                            isStatic()
                                .and(isPublic())
                                .and(named("open"))
                                .and(
                                    takesArgument(
                                        0, namedOneOf("org.rocksdb.Options", "org.rocksdb.DBOptions")))))
                    .visit(
                        Advice.to(BeforeClose.class)
                            .on(namedOneOf("close", "closeE").and(takesNoArguments()))))
        .installOn(instrumentation);
  }

  /** Copied into the methods that close. */
  private static final class BeforeClose {
    private BeforeClose() {}

    @Advice.OnMethodEnter(suppress = Throwable.class)
    static void enter(@Advice.This Object database) {
      org.rockmill.AgentHook.beforeClose(database);
    }
  }

  /** Copied into the methods that open. */
  private static final class BeforeOpen {
    private BeforeOpen() {}

    @Advice.OnMethodEnter(suppress = Throwable.class)
    static void enter(@Advice.Argument(0) Object options) {
      org.rockmill.AgentHook.beforeOpen(options);
    }
  }
}
