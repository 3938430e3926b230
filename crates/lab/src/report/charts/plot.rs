//! One chart: title, axes, curves with intervals, and legend. The colors are those of Okabe and Ito (2008), which people
//! with any color vision can distinguish. Their yellow is too pale for a line on white and is replaced by a gray; three of
//! Tol's colors follow. Marks differ too.

use super::ChartError;
use super::axis::Axis;
use crate::statistics::Estimate;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub(in crate::report) struct Plot {
    pub(in crate::report) title: String,
    pub(in crate::report) subtitle: String,
    pub(in crate::report) footnote: String,
    pub(in crate::report) x: Axis,
    pub(in crate::report) y: Axis,
    pub(in crate::report) curves: Vec<Curve>,
}

pub(in crate::report) struct Curve {
    pub(in crate::report) label: String,
    /// Determines color and mark.
    pub(in crate::report) style: usize,
    /// In ascending order of x.
    pub(in crate::report) marks: Vec<Mark>,
    /// Every `marks_every`-th point has a mark; not 0.
    pub(in crate::report) marks_every: usize,
}

pub(in crate::report) struct Mark {
    pub(in crate::report) x: f64,
    pub(in crate::report) y: f64,
    pub(in crate::report) interval: Option<(f64, f64)>,
    /// A lower bound: drawn hollow, with an arrow up.
    pub(in crate::report) at_least: bool,
}

impl Curve {
    /// A curve through estimates, each at its x; estimates of `None` are left out. `None` if there are none at all.
    pub(in crate::report) fn through(
        label: String,
        style: usize,
        estimates: impl Iterator<Item = (f64, Option<Estimate>)>,
    ) -> Option<Curve> {
        let mark = |(x, estimate): (f64, Option<Estimate>)| {
            let Estimate { value: y, interval, at_least } = estimate?;
            Some(Mark { x, y, interval: interval.map(|i| (i.low, i.high)), at_least })
        };
        let marks: Vec<Mark> = estimates.filter_map(mark).collect();
        (!marks.is_empty()).then_some(Curve { label, style, marks, marks_every: 1 })
    }
}

/// The y values of curves and of their bars.
pub(in crate::report) fn heights(curves: &[Curve]) -> impl Iterator<Item = f64> {
    curves.iter().flat_map(|curve| &curve.marks).flat_map(|mark| {
        let (low, high) = mark.interval.unwrap_or((mark.y, mark.y));
        [mark.y, low, high]
    })
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Context<'a, 'b, 'c> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<&'c Axis, &'c Axis>>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

const WIDTH: u32 = 900;
const HEIGHT: u32 = 540;
/// The library places everything on whole numbers. Drawing larger by this factor and scaling down through the view box
/// makes curves smooth.
const FINE: i32 = 8;

const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const SOFT: RGBColor = RGBColor(0x66, 0x66, 0x66);
const GRID: RGBColor = RGBColor(0xE2, 0xE2, 0xE2);
const PALETTE: [RGBColor; 10] = [
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0x56, 0xB4, 0xE9),
    RGBColor(0x8A, 0x8A, 0x8A),
    RGBColor(0x88, 0x22, 0x55),
    RGBColor(0x99, 0x99, 0x33),
    RGBColor(0x44, 0xAA, 0x99),
];

impl Plot {
    /// A complete SVG document.
    pub(in crate::report) fn draw(&self) -> Result<String, ChartError> {
        let mut svg = String::new();
        let drawn = self.draw_into(&mut svg);
        drawn.map_err(|source| ChartError(source.to_string()))?;
        let fine = format!("width=\"{}\" height=\"{}\"", WIDTH * FINE as u32, HEIGHT * FINE as u32);
        Ok(svg.replacen(&fine, &format!("width=\"{WIDTH}\" height=\"{HEIGHT}\""), 1))
    }

    fn draw_into(&self, svg: &mut String) -> Drawn {
        let root = SVGBackend::with_string(svg, (WIDTH * FINE as u32, HEIGHT * FINE as u32))
            .into_drawing_area();
        root.fill(&WHITE)?;

        write(&root, &self.title, (24, 18), font(21).style(FontStyle::Bold), INK, HPos::Left)?;
        write(&root, &self.subtitle, (24, 50), font(14), SOFT, HPos::Left)?;
        write(&root, &self.footnote, (24, HEIGHT as i32 - 22), font(12), SOFT, HPos::Left)?;

        let right = self.legend(&root)?;
        let mut chart = self.axes(&root, right)?;
        for (index, curve) in self.curves.iter().enumerate() {
            self.curve(&mut chart, curve, index)?;
        }

        root.present()
    }

    fn axes<'a, 'b, 'c>(
        &'c self,
        root: &'a Area<'b>,
        right: i32,
    ) -> Result<Context<'a, 'b, 'c>, DrawingAreaErrorKind<std::io::Error>> {
        let mut chart = ChartBuilder::on(root)
            .margin_top(fine(84))
            .margin_right(fine(right))
            .margin_left(fine(16))
            .margin_bottom(fine(34))
            .x_label_area_size(fine(48))
            .y_label_area_size(fine(78))
            .build_cartesian_2d(&self.x, &self.y)?;

        chart
            .configure_mesh()
            .bold_line_style(stroke(GRID, 1))
            .light_line_style(TRANSPARENT)
            .axis_style(stroke(SOFT, 1))
            .set_all_tick_mark_size(fine(4))
            .x_labels(self.x.ticks.len())
            .y_labels(self.y.ticks.len())
            .label_style(font(13).color(&INK))
            .axis_desc_style(font(14).color(&INK))
            .x_desc(&self.x.name)
            .y_desc(&self.y.name)
            .draw()?;
        Ok(chart)
    }

    fn curve(&self, chart: &mut Context<'_, '_, '_>, curve: &Curve, index: usize) -> Drawn {
        let color = PALETTE[curve.style % PALETTE.len()];
        // Bars at one loss rate would hide each other, so the bars of each curve are shifted a little.
        let curves = self.curves.len() as i32;
        let aside = (index as i32 * 2 - curves + 1) * FINE * 6 / curves.max(4);
        let place = |mark: &Mark| (self.x.place(mark.x), self.y.place(mark.y));

        chart.draw_series([PathElement::new(
            curve.marks.iter().map(place).collect::<Vec<_>>(),
            stroke(color, 2),
        )])?;

        for mark in &curve.marks {
            let Some((low, high)) = mark.interval else { continue };
            let plane = chart.as_coord_spec();
            let at = |y: f64| plane.translate(&(self.x.place(mark.x), self.y.place(y))).1;
            let (middle, low, high) = (at(mark.y), at(low), at(high));
            // A bar that is no longer than the mark would look like a stray dash next to it.
            if (high - low).abs() <= fine(10) {
                continue;
            }

            let cap = 3 * FINE;
            let line = |from: (i32, i32), to: (i32, i32)| {
                PathElement::new(
                    vec![(aside + from.0, from.1 - middle), (aside + to.0, to.1 - middle)],
                    stroke(color, 1),
                )
            };

            let bar = EmptyElement::at(place(mark))
                + line((0, low), (0, high))
                + line((-cap, low), (cap, low))
                + line((-cap, high), (cap, high));
            chart.draw_series([bar])?;
        }

        let first = (index + 1) * curve.marks_every / (self.curves.len() + 1);
        for mark in curve.marks.iter().skip(first).step_by(curve.marks_every.max(1)) {
            let at = place(mark);
            match mark.at_least {
                false => chart.draw_series([
                    EmptyElement::at(at) + Polygon::new(shape(curve.style), color.filled())
                ])?,
                true => chart.draw_series([EmptyElement::at(at)
                    + Polygon::new(shape(curve.style), WHITE.filled())
                    + PathElement::new(outline(curve.style), stroke(color, 2))
                    + PathElement::new(arrow_up(), stroke(color, 2))])?,
            };
        }
        Ok(())
    }

    /// Draws the legend on the right, in the order of the curves' last values with the highest first, and returns its
    /// width.
    fn legend(&self, root: &Area<'_>) -> Result<i32, DrawingAreaErrorKind<std::io::Error>> {
        let mut curves: Vec<&Curve> = self.curves.iter().collect();
        let end = |curve: &Curve| curve.marks.last().map_or(0.0, |mark| mark.y);
        curves.sort_by(|a, b| end(b).total_cmp(&end(a)));

        let longest = curves.iter().map(|curve| curve.label.chars().count()).max();
        // On average a character of 13 px sans-serif is 7 px wide; in such names, at most 8.
        let room = 64 + 8 * longest.unwrap_or(0) as i32;
        let left = WIDTH as i32 - room + 12;

        for (row, curve) in curves.iter().enumerate() {
            let y = 100 + 24 * row as i32;
            let color = PALETTE[curve.style % PALETTE.len()];
            root.draw(&PathElement::new(
                vec![(fine(left), fine(y)), (fine(left + 28), fine(y))],
                stroke(color, 2),
            ))?;
            root.draw(
                &(EmptyElement::at((fine(left + 14), fine(y)))
                    + Polygon::new(shape(curve.style), color.filled())),
            )?;
            write(root, &curve.label, (left + 38, y - 6), font(13), INK, HPos::Left)?;
        }

        Ok(room)
    }
}

fn write(
    root: &Area<'_>,
    text: &str,
    (x, y): (i32, i32),
    font: FontDesc<'_>,
    color: RGBColor,
    side: HPos,
) -> Drawn {
    let style = TextStyle::from(font).color(&color).pos(Pos::new(side, VPos::Top));
    root.draw(&Text::new(text, (fine(x), fine(y)), style))
}

/// A sans-serif font of this many pixels. The SVG backend divides sizes by 1.24.
fn font(pixels: i32) -> FontDesc<'static> {
    (FontFamily::SansSerif, f64::from(pixels * FINE) * 1.24).into_font()
}

fn fine(pixels: i32) -> i32 {
    pixels * FINE
}

fn stroke(color: RGBColor, pixels: i32) -> ShapeStyle {
    color.stroke_width(fine(pixels) as u32)
}

/// The closed outline of a mark.
fn outline(style: usize) -> Vec<(i32, i32)> {
    let shape = shape(style);
    shape.iter().chain(shape.first()).copied().collect()
}

/// An arrow that begins above a mark, in one stroke.
fn arrow_up() -> Vec<(i32, i32)> {
    let path = [(0, -7), (0, -19), (-4, -14), (0, -19), (4, -14)];
    path.map(|(x, y)| (fine(x), fine(y))).to_vec()
}

/// The mark of a style, around 0.
fn shape(style: usize) -> Vec<(i32, i32)> {
    let shape: &[(i32, i32)] = match style % 8 {
        // An octagon instead of a circle: `Circle` and polygons cannot be in one list.
        0 => &[(-2, -5), (2, -5), (5, -2), (5, 2), (2, 5), (-2, 5), (-5, 2), (-5, -2)],
        1 => &[(-4, -4), (4, -4), (4, 4), (-4, 4)],
        2 => &[(0, -6), (5, 4), (-5, 4)],
        3 => &[(0, -6), (6, 0), (0, 6), (-6, 0)],
        4 => &[(0, 6), (5, -4), (-5, -4)],
        5 => &[(-6, 0), (4, -5), (4, 5)],
        6 => &[(6, 0), (-4, -5), (-4, 5)],
        _ => &[
            (-2, -6),
            (2, -6),
            (2, -2),
            (6, -2),
            (6, 2),
            (2, 2),
            (2, 6),
            (-2, 6),
            (-2, 2),
            (-6, 2),
            (-6, -2),
            (-2, -2),
        ],
    };

    shape.iter().map(|&(x, y)| (fine(x), fine(y))).collect()
}
