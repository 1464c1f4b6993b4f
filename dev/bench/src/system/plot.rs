//! Charts, as SVG.

use plotters::prelude::*;

/// A chart of several lines.
#[derive(Debug, Default)]
pub struct Chart {
    pub title: String,
    pub x: String,
    pub y: String,
    /// Name and points of each line.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// A chart of horizontal bars.
#[cfg(feature = "scan")]
#[derive(Debug, Default)]
pub struct Bars {
    pub title: String,
    /// Meaning of the lengths.
    pub x: String,
    /// Name and length of each bar, from the top.
    pub bars: Vec<(String, f64)>,
}

/// Size of a chart, pixels.
const CHART: (u32, u32) = (460, 300);
const FONT: &str = "sans-serif";
const TITLE_PIXELS: u32 = 18;
const LABEL_PIXELS: u32 = 15;
const MARGIN: u32 = 8;
const X_LABELS: u32 = 40;
const Y_LABELS: u32 = 64;
const LINE: u32 = 2;
const POINT: u32 = 3;
/// Length of a line in the legend.
const SAMPLE: i32 = 16;
/// Space for the legend above the highest point.
const HEADROOM: f64 = 1.4;

/// Draws the charts row by row, `columns` in each.
///
/// # Errors
/// A sentence about the error of the drawing library.
pub fn svg(charts: &[Chart], columns: usize) -> Result<String, String> {
    draw_all(charts, columns, draw)
}

/// Draws the charts row by row, `columns` in each.
///
/// # Errors
/// A sentence about the error of the drawing library.
#[cfg(feature = "scan")]
pub fn bars_svg(charts: &[Bars], columns: usize) -> Result<String, String> {
    draw_all(charts, columns, draw_bars)
}

fn draw_all<C>(
    charts: &[C],
    columns: usize,
    draw: impl for<'a> Fn(&C, &Area<'a>) -> Result<(), Error<'a>>,
) -> Result<String, String> {
    let rows = charts.len().div_ceil(columns).max(1);
    let size = (CHART.0 * columns as u32, CHART.1 * rows as u32);
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        let failed = |e: DrawingAreaErrorKind<_>| format!("cannot draw: {e}");
        area.fill(&WHITE).map_err(failed)?;
        for (chart, area) in charts.iter().zip(area.split_evenly((rows, columns))) {
            draw(chart, &area).map_err(failed)?;
        }
        area.present().map_err(failed)?;
    }
    Ok(text)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Error<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

fn draw<'a>(chart: &Chart, area: &Area<'a>) -> Result<(), Error<'a>> {
    let points = || chart.lines.iter().flat_map(|(_, points)| points);
    let highest = |of: fn(&(f64, f64)) -> f64| {
        let highest = points().map(of).fold(0.0, f64::max);
        if highest > 0.0 { highest } else { 1.0 }
    };
    let (x_end, y_end) = (highest(|p| p.0), highest(|p| p.1) * HEADROOM);
    let mut context = ChartBuilder::on(area)
        .caption(&chart.title, (FONT, TITLE_PIXELS))
        .margin(MARGIN)
        .x_label_area_size(X_LABELS)
        .y_label_area_size(Y_LABELS)
        .build_cartesian_2d(0.0..x_end, 0.0..y_end)?;
    context
        .configure_mesh()
        .x_desc(&chart.x)
        .y_desc(&chart.y)
        .label_style((FONT, LABEL_PIXELS))
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (number, (name, points)) in chart.lines.iter().enumerate() {
        let color = Palette99::pick(number).to_rgba();
        let line = LineSeries::new(points.iter().copied(), color.stroke_width(LINE));
        context
            .draw_series(line.point_size(POINT))?
            .label(name)
            .legend(move |(x, y)| {
                PathElement::new([(x, y), (x + SAMPLE, y)], color.stroke_width(LINE))
            });
    }
    context
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .label_font((FONT, LABEL_PIXELS))
        .background_style(WHITE.mix(0.8))
        .draw()
}

#[cfg(feature = "scan")]
fn draw_bars<'a>(chart: &Bars, area: &Area<'a>) -> Result<(), Error<'a>> {
    const NAMES: u32 = 150;
    const GAP: f64 = 0.12;
    let longest = chart
        .bars
        .iter()
        .map(|(_, length)| *length)
        .fold(0.0, f64::max);
    let x_end = if longest > 0.0 { longest } else { 1.0 };
    let names: Vec<_> = chart.bars.iter().map(|(name, _)| name.clone()).collect();
    let count = names.len().max(1);
    let mut context = ChartBuilder::on(area)
        .caption(&chart.title, (FONT, TITLE_PIXELS))
        .margin(MARGIN)
        .x_label_area_size(X_LABELS)
        .y_label_area_size(NAMES)
        .build_cartesian_2d(0.0..x_end, (0..count).into_segmented())?;
    context
        .configure_mesh()
        .x_desc(&chart.x)
        .label_style((FONT, LABEL_PIXELS))
        .disable_y_mesh()
        .light_line_style(TRANSPARENT)
        .y_labels(count)
        .y_label_formatter(&|segment| match segment {
            SegmentValue::CenterOf(bar) => names.get(count - 1 - bar).cloned().unwrap_or_default(),
            _ => String::new(),
        })
        .draw()?;
    let margin = (GAP * f64::from(CHART.1) / count as f64) as u32;
    context.draw_series(chart.bars.iter().enumerate().map(|(number, (_, length))| {
        let at = count - 1 - number;
        let ends = [
            (0.0, SegmentValue::Exact(at)),
            (*length, SegmentValue::Exact(at + 1)),
        ];
        let mut bar = Rectangle::new(ends, Palette99::pick(number).to_rgba().filled());
        bar.set_margin(margin, margin, 0, 0);
        bar
    }))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_chart_has_its_title_and_its_lines() {
        let chart = |title: &str| Chart {
            title: title.to_owned(),
            x: "across".to_owned(),
            y: "up".to_owned(),
            lines: vec![
                ("one".to_owned(), vec![(0.0, 1.0), (40.0, 3.0)]),
                ("none".to_owned(), Vec::new()),
            ],
        };
        let text = svg(&[chart("first"), chart("second"), chart("a < b")], 2).expect("drawn");
        for expected in ["first", "second", "a &lt; b", "across", "up"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(text.matches("one\n").count() >= 3, "{text}");
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        assert!(svg(&[], 2).expect("drawn").contains("</svg>"));
    }
}
