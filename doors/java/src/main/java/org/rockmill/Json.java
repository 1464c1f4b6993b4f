package org.rockmill;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** Reads the JSON of the library: objects as maps, arrays as lists, numbers as {@code Long} or {@code Double}. */
final class Json {
  private static final String DIGITS = "0123456789+-.eE";

  private final String text;
  private int at;

  private Json(String text) {
    this.text = text;
  }

  /** Returns the object that a text consists of. */
  static Map<String, @Nullable Object> object(String text) {
    Json json = new Json(text);
    Map<String, @Nullable Object> made = json.object();
    if (json.at != text.length()) throw json.error();
    return made;
  }

  private Map<String, @Nullable Object> object() {
    Map<String, @Nullable Object> made = new LinkedHashMap<>();
    expect('{');
    while (!next('}')) {
      if (!made.isEmpty()) expect(',');
      String name = string();
      expect(':');
      made.put(name, value());
    }
    return made;
  }

  private List<@Nullable Object> array() {
    List<@Nullable Object> made = new ArrayList<>();
    expect('[');
    while (!next(']')) {
      if (!made.isEmpty()) expect(',');
      made.add(value());
    }
    return made;
  }

  private @Nullable Object value() {
    char first = at < text.length() ? text.charAt(at) : 0;
    if (first == '{') return object();
    if (first == '[') return array();
    if (first == '"') return string();
    if (text.startsWith("null", at)) {
      at += 4;
      return null;
    }
    int begin = at;
    while (at < text.length() && DIGITS.indexOf(text.charAt(at)) >= 0) ++at;
    String number = text.substring(begin, at);
    try {
      return Long.valueOf(number);
    } catch (NumberFormatException error) {
      // It has a fraction.
    }
    try {
      return Double.valueOf(number);
    } catch (NumberFormatException error) {
      throw error();
    }
  }

  private String string() {
    StringBuilder made = new StringBuilder();
    expect('"');
    while (!next('"')) {
      char c = take();
      made.append(c == '\\' ? escaped(take()) : c);
    }
    return made.toString();
  }

  private char escaped(char c) {
    switch (c) {
      case 'b':
        return '\b';
      case 'f':
        return '\f';
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'u':
        at += 4;
        if (at > text.length()) throw error();
        return (char) Integer.parseInt(text.substring(at - 4, at), 16);
      default:
        return c;
    }
  }

  private char take() {
    if (at == text.length()) throw error();
    return text.charAt(at++);
  }

  private boolean next(char expected) {
    boolean is = at < text.length() && text.charAt(at) == expected;
    if (is) ++at;
    return is;
  }

  private void expect(char expected) {
    if (!next(expected)) throw error();
  }

  private IllegalStateException error() {
    return new IllegalStateException("Rockmill's statistics are not read from character " + at + ": " + text);
  }
}
