package org.rockmill.agent;

import static net.bytebuddy.matcher.ElementMatchers.isPublic;
import static net.bytebuddy.matcher.ElementMatchers.isStatic;
import static net.bytebuddy.matcher.ElementMatchers.named;
import static net.bytebuddy.matcher.ElementMatchers.namedOneOf;
import static net.bytebuddy.matcher.ElementMatchers.nameStartsWith;
import static net.bytebuddy.matcher.ElementMatchers.not;
import static net.bytebuddy.matcher.ElementMatchers.takesArgument;

import java.lang.System.Logger.Level;
import java.lang.instrument.Instrumentation;
import net.bytebuddy.agent.builder.AgentBuilder;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.utility.JavaModule;
import org.jspecify.annotations.Nullable;

/**
 * Makes every {@code open} of RocksJava that can compact call {@link org.rockmill.AgentHook} first.
 *
 * <p>RocksJava's class loader may not see that class, or may have another copy of it. So its code calls the one of the
 * agent by reflection.
 */
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
        .with(new Failures())
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
                        Advice.to(BeforeCreate.class)
                            .on(isPublic().and(nameStartsWith("createColumnFamil")))))
        .installOn(instrumentation);
  }

  /** Says why a class stays as it was. */
  private static final class Failures extends AgentBuilder.Listener.Adapter {
    @Override
    public void onError(
        String name, @Nullable ClassLoader loader, @Nullable JavaModule module, boolean isLoaded, Throwable error) {
      String what = "RocksDB goes on without Rockmill: the agent cannot change " + name + " (" + error + ")";
      System.getLogger("org.rockmill").log(Level.WARNING, what);
    }
  }

  /** Copied into the methods that make column families. */
  private static final class BeforeCreate {
    private BeforeCreate() {}

    @Advice.OnMethodEnter(suppress = Throwable.class)
    static void enter(@Advice.This Object database, @Advice.AllArguments Object[] arguments)
        throws ReflectiveOperationException {
      Class.forName("org.rockmill.AgentHook", true, ClassLoader.getSystemClassLoader())
          .getMethod("beforeCreate", Object.class, Object[].class)
          .invoke(null, database, (Object) arguments);
    }
  }

  /** Copied into the methods that open. */
  private static final class BeforeOpen {
    private BeforeOpen() {}

    @Advice.OnMethodEnter(suppress = Throwable.class)
    static void enter(@Advice.AllArguments Object[] arguments) throws ReflectiveOperationException {
      Class.forName("org.rockmill.AgentHook", true, ClassLoader.getSystemClassLoader())
          .getMethod("beforeOpen", Object[].class)
          .invoke(null, (Object) arguments);
    }
  }
}
