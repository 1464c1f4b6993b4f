package org.rockmill;

import java.util.Map;
import java.util.TreeMap;

/** Settings by name, as the library reads them. */
final class Settings {
  private final Map<String, String> values = new TreeMap<>();

  void set(String name, String value) {
    if (name.indexOf('=') >= 0) throw new RockmillException("the setting name " + name + " contains '='");
    if (name.indexOf(';') >= 0 || value.indexOf(';') >= 0) {
      throw new RockmillException("the setting " + name + " contains ';'");
    }
    values.put(name, value);
  }

  void setDefault(String name, String value) {
    values.putIfAbsent(name, value);
  }

  /** Sets those of {@code key=value} with {@code ;} or {@code ,} between them. */
  void setAll(String text) {
    for (String pair : text.split("[;,]")) {
      if (pair.trim().isEmpty()) continue;
      int equals = pair.indexOf('=');
      if (equals < 0) throw new RockmillException("the setting " + pair.trim() + " has no '='");
      set(pair.substring(0, equals).trim(), pair.substring(equals + 1).trim());
    }
  }

  String text() {
    StringBuilder text = new StringBuilder();
    values.forEach((name, value) -> text.append(name).append('=').append(value).append(';'));
    return text.toString();
  }
}
