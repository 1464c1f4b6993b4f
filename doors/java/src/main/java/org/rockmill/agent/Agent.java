package org.rockmill.agent;

import java.io.IOException;
import java.io.InputStream;
import java.lang.instrument.Instrumentation;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import org.jspecify.annotations.Nullable;
import org.rockmill.AgentHook;

/**
 * Attaches Rockmill to every database that a program opens: {@code java -javaagent:rockmill.jar=device=auto,threads=8 ..}.
 * The program needs no change. Whatever fails, it goes on without Rockmill.
 */
public final class Agent {
  private static final String BYTE_BUDDY = "/META-INF/agent/byte-buddy.jar";

  private Agent() {}

  /**
   * Called by the JVM before the program.
   *
   * @param settings {@code key=value} with {@code ,} or {@code ;} between them; null for the defaults
   * @param instrumentation of the JVM
   */
  public static void premain(@Nullable String settings, Instrumentation instrumentation) {
    try {
      AgentHook.configure(settings == null ? "" : settings);
      // In a class loader of its own, so that it does not meet a Byte Buddy of the program.
      URL[] jars = {byteBuddy(), Agent.class.getProtectionDomain().getCodeSource().getLocation()};
      ClassLoader own = new URLClassLoader(jars, ClassLoader.getPlatformClassLoader());
      Class<?> transform = Class.forName("org.rockmill.agent.Transform", true, own);
      transform.getMethod("install", Instrumentation.class).invoke(null, instrumentation);
    } catch (Throwable error) {
      AgentHook.say(error);
    }
  }

  /**
   * Called by the JVM when the agent is loaded into a running program. Databases that are open stay without Rockmill.
   *
   * @param settings as for {@link #premain}
   * @param instrumentation of the JVM
   */
  public static void agentmain(@Nullable String settings, Instrumentation instrumentation) {
    premain(settings, instrumentation);
  }

  private static URL byteBuddy() throws IOException {
    Path file = Files.createTempFile("rockmill-agent", ".jar");
    file.toFile().deleteOnExit();
    try (InputStream in = Agent.class.getResourceAsStream(BYTE_BUDDY)) {
      if (in == null) throw new IOException("the jar lacks " + BYTE_BUDDY);
      Files.copy(in, file, StandardCopyOption.REPLACE_EXISTING);
    }
    return file.toUri().toURL();
  }
}
