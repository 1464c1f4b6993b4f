//! Progress indicators on standard error, which are hidden if that is not a terminal.

use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};
use rockmill_core::Lock;
use rustix::termios::tcgetwinsize;

/// Variable with which another program asks for lines `progress DONE ALL` in place of a bar over bytes.
const LINES: &str = "ROCKMILL_PROGRESS";

/// Goes to the first column, and removes the line.
const CLEAR_LINE: &str = "\r\x1b[2K";

/// Returns a bar over the entries to write.
pub fn bar(entries: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("writing {wide_bar} {human_pos}/{human_len} {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(entries), target()).with_style(style)
}

/// Returns a bar over bytes with a message behind it, which is cut at the width of the terminal.
pub fn bytes(total: u64) -> ProgressBar {
    const TEMPLATE: &str = "{bar:16} {decimal_bytes}/{decimal_total_bytes} {eta} {wide_msg}";
    const LINE: &str = "progress {pos} {len}";
    let as_lines = std::env::var(LINES).is_ok_and(|kind| kind == "lines");
    let style = ProgressStyle::with_template(if as_lines { LINE } else { TEMPLATE });
    let bar = match as_lines {
        true => ProgressBar::with_draw_target(
            Some(total),
            ProgressDrawTarget::term_like(Box::new(Lines)),
        ),
        false => ProgressBar::with_draw_target(Some(total), target()),
    };
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Standard error, on which a bar leaves room for what a terminal prints at Control-C. Behind a full line, that would begin
/// the next line, and the bar would stay above it.
pub fn target() -> ProgressDrawTarget {
    const DRAWINGS_PER_SECOND: u8 = 20;
    let usual = ProgressDrawTarget::stderr();
    match usual.is_hidden() {
        true => usual,
        false => ProgressDrawTarget::term_like_with_hz(
            Box::new(Terminal::default()),
            DRAWINGS_PER_SECOND,
        ),
    }
}

/// Standard error as a terminal with fewer columns. It writes each drawing at once, so that no line is empty meanwhile.
#[derive(Debug, Default)]
struct Terminal(Lock<String>);

impl Terminal {
    fn add(&self, text: impl fmt::Display) -> io::Result<()> {
        let mut drawing = self.0.lock();
        write!(drawing, "{text}").map_err(io::Error::other)
    }

    fn go(&self, count: usize, to: char) -> io::Result<()> {
        match count {
            0 => Ok(()),
            count => self.add(format_args!("\x1b[{count}{to}")),
        }
    }
}

impl TermLike for Terminal {
    fn width(&self) -> u16 {
        const USUAL: u16 = 80;
        const ROOM: u16 = "^C".len() as u16;
        let columns = tcgetwinsize(io::stderr()).map_or(0, |size| size.ws_col);
        let columns = if columns == 0 { USUAL } else { columns };
        columns.saturating_sub(ROOM).max(1)
    }

    fn move_cursor_up(&self, count: usize) -> io::Result<()> {
        self.go(count, 'A')
    }

    fn move_cursor_down(&self, count: usize) -> io::Result<()> {
        self.go(count, 'B')
    }

    fn move_cursor_right(&self, count: usize) -> io::Result<()> {
        self.go(count, 'C')
    }

    fn move_cursor_left(&self, count: usize) -> io::Result<()> {
        self.go(count, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.add(format_args!("{text}\n"))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.add(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.add(CLEAR_LINE)
    }

    fn flush(&self) -> io::Result<()> {
        let drawing = std::mem::take(&mut *self.0.lock());
        io::stderr().write_all(drawing.as_bytes())
    }
}

/// Removes a bar that a thread has left on the terminal.
pub fn clear_line() {
    if !target().is_hidden() {
        let _ = io::stderr().write_all(CLEAR_LINE.as_bytes());
    }
}

/// Standard error as a terminal on which each drawing is a line of its own.
#[derive(Debug)]
struct Lines;

impl TermLike for Lines {
    fn width(&self) -> u16 {
        const WIDE_ENOUGH: u16 = 200;
        WIDE_ENOUGH
    }

    fn move_cursor_up(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_down(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_right(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_left(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.write_str(text)
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        // Nothing else but spaces that fill the line.
        if !text.trim().is_empty() {
            eprintln!("{}", text.trim());
        }
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns an indicator for work of unknown duration.
pub fn spinner(what: String) -> ProgressBar {
    let spinner = ProgressBar::new_spinner().with_message(what);
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}
