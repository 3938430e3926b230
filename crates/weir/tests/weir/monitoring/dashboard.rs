//! Dashboards in a compact form, and the JSON that Grafana imports.

use ledger::{HopKind, Reason};
use serde_json::{Value, json};
use std::iter;

/// A dashboard of `deploy/grafana`.
pub(super) struct Dashboard {
    /// Its file's name without the suffix.
    pub(super) file: &'static str,
    pub(super) title: &'static str,
    pub(super) description: &'static str,
    /// Labels by which a viewer chooses, each with a metric that has it.
    pub(super) choices: &'static [(&'static str, &'static str)],
    pub(super) rows: &'static [Row],
}

/// Panels under one heading.
pub(super) struct Row {
    pub(super) title: &'static str,
    pub(super) panels: &'static [Panel],
}

/// One question, in a unit of Grafana's.
pub(super) struct Panel {
    pub(super) title: &'static str,
    pub(super) unit: &'static str,
    pub(super) description: &'static str,
    pub(super) shape: Shape,
    pub(super) queries: &'static [Query],
}

/// How a panel shows its answers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Curves over time.
    Lines,
    /// One figure of the chosen time.
    Figure,
    /// The same, red above zero.
    Loss,
    /// A row for each set of labels and a column for each query, as things are now.
    Table,
}

/// The legend, or the column's name, and an expression. `at LABEL` stands for what the viewer chose, `lost at HOP` for the reasons
/// that no setting asks for.
pub(super) type Query = (&'static str, &'static str);

/// Curves over time.
pub(super) const fn lines(
    title: &'static str,
    unit: &'static str,
    description: &'static str,
    queries: &'static [Query],
) -> Panel {
    Panel { title, unit, description, shape: Shape::Lines, queries }
}

/// One figure of the chosen time.
pub(super) const fn figure(
    title: &'static str,
    unit: &'static str,
    description: &'static str,
    queries: &'static [Query],
) -> Panel {
    Panel { title, unit, description, shape: Shape::Figure, queries }
}

/// A figure that should be zero.
pub(super) const fn loss(
    title: &'static str,
    description: &'static str,
    queries: &'static [Query],
) -> Panel {
    Panel { title, unit: "short", description, shape: Shape::Loss, queries }
}

/// Rows of labels.
pub(super) const fn table(
    title: &'static str,
    unit: &'static str,
    description: &'static str,
    queries: &'static [Query],
) -> Panel {
    Panel { title, unit, description, shape: Shape::Table, queries }
}

pub(super) const SCREEN_WIDTH: u32 = 24;

impl Shape {
    fn size(self) -> (u32, u32) {
        match self {
            Shape::Lines => (8, 8),
            Shape::Figure | Shape::Loss => (4, 4),
            Shape::Table => (SCREEN_WIDTH, 9),
        }
    }

    fn plugin(self) -> &'static str {
        match self {
            Shape::Lines => "timeseries",
            Shape::Figure | Shape::Loss => "stat",
            Shape::Table => "table",
        }
    }
}

impl Dashboard {
    /// What Grafana imports.
    pub(super) fn json(&self) -> String {
        let source = json!({
            "name": "prometheus", "label": "Prometheus", "type": "datasource", "query": "prometheus",
            "current": {}, "hide": 0, "refresh": 1,
        });
        let choices = self.choices.iter().map(|&choice| variable(choice));
        let rows = self.rows.iter().map(|row| {
            (row.title, row.panels.iter().map(|panel| (panel.shape.size(), panel.json())).collect())
        });
        let frame = Frame { file: self.file, title: self.title, description: self.description };
        frame.json(iter::once(source).chain(choices).collect(), rows.collect())
    }
}

/// A dashboard without what is on it.
pub(super) struct Frame {
    pub(super) file: &'static str,
    pub(super) title: &'static str,
    pub(super) description: &'static str,
}

/// Panels under one heading, each with its width and height.
pub(super) type Placed = (&'static str, Vec<((u32, u32), Value)>);

impl Frame {
    /// What Grafana imports.
    pub(super) fn json(&self, variables: Vec<Value>, rows: Vec<Placed>) -> String {
        let dashboard = json!({
            "uid": format!("weir-{}", self.file),
            "title": self.title,
            "description": self.description,
            "tags": ["weir"],
            "schemaVersion": 39,
            "version": 1,
            "editable": true,
            "graphTooltip": 1,
            "refresh": "1m",
            "time": { "from": "now-1h", "to": "now" },
            "timezone": "browser",
            "templating": { "list": variables },
            "panels": place(rows),
        });
        serde_json::to_string_pretty(&dashboard).unwrap() + "\n"
    }
}

/// Every row's heading and panels, from left to right and from top to bottom.
fn place(rows: Vec<Placed>) -> Vec<Value> {
    let mut panels = Vec::new();
    let mut top = 0;
    for (title, row) in rows {
        let place = json!({ "x": 0, "y": top, "w": SCREEN_WIDTH, "h": 1 });
        panels.push(json!({
            "id": panels.len() + 1, "type": "row", "title": title, "collapsed": false,
            "gridPos": place, "panels": [],
        }));
        top += 1;

        let (mut left, mut line_height) = (0, 0);
        for ((width, height), mut panel) in row {
            if left + width > SCREEN_WIDTH {
                top += line_height;
                (left, line_height) = (0, 0);
            }
            panel["id"] = (panels.len() + 1).into();
            panel["gridPos"] = json!({ "x": left, "y": top, "w": width, "h": height });
            panels.push(panel);
            left += width;
            line_height = line_height.max(height);
        }
        top += line_height;
    }
    panels
}

fn variable((label, metric): (&str, &str)) -> Value {
    let query = format!("label_values({metric}, {label})");
    json!({
        "name": label, "type": "query", "datasource": source(), "query": query, "definition": query, "refresh": 2,
        "includeAll": true, "multi": true, "allValue": ".*", "current": { "text": "All", "value": "$__all" },
    })
}

fn source() -> Value {
    json!({ "type": "prometheus", "uid": "${prometheus}" })
}

impl Panel {
    fn json(&self) -> Value {
        let targets: Vec<Value> =
            self.queries.iter().zip('A'..).map(|(query, id)| self.target(query, id)).collect();
        let mut panel = json!({
            "type": self.shape.plugin(),
            "title": self.title,
            "description": self.description,
            "datasource": source(),
            "targets": targets,
            "fieldConfig": { "defaults": { "unit": self.unit, "min": 0 }, "overrides": [] },
        });

        match self.shape {
            Shape::Lines => {
                panel["options"] = json!({
                    "legend": { "displayMode": "list", "placement": "bottom", "showLegend": true },
                    "tooltip": { "mode": "multi", "sort": "desc" },
                });
            }
            Shape::Figure | Shape::Loss => self.add_figure(&mut panel),
            Shape::Table => self.add_columns(&mut panel),
        }
        panel
    }

    fn target(&self, (legend, expression): &Query, id: char) -> Value {
        let mut target = json!({
            "refId": id.to_string(), "datasource": source(), "expr": expand(expression), "legendFormat": legend,
        });
        target["range"] = (self.shape == Shape::Lines).into();
        target["instant"] = (self.shape != Shape::Lines).into();
        if self.shape == Shape::Table {
            target["format"] = "table".into();
        }
        target
    }

    fn add_figure(&self, panel: &mut Value) {
        let mut steps = vec![json!({ "color": "green", "value": null })];
        if self.shape == Shape::Loss {
            // Increases are extrapolated: from half an event on there was one.
            steps.push(json!({ "color": "red", "value": 0.5 }));
        }
        panel["fieldConfig"]["defaults"]["thresholds"] =
            json!({ "mode": "absolute", "steps": steps });
        panel["fieldConfig"]["defaults"]["decimals"] = 0.into();
        panel["options"] = json!({
            "colorMode": "value", "graphMode": "none",
            "reduceOptions": { "calcs": ["lastNotNull"], "fields": "", "values": false },
        });
    }

    /// Joins the answers of all queries by their labels. Grafana calls the values `Value #A` and so on, and `Value` if there is one.
    fn add_columns(&self, panel: &mut Value) {
        let name = |id: char| match self.queries.len() {
            1 => "Value".to_owned(),
            _ => format!("Value #{id}"),
        };
        let columns = self.queries.iter().zip('A'..);
        let names: serde_json::Map<_, _> =
            columns.map(|((column, _), id)| (name(id), (*column).into())).collect();
        panel["transformations"] = json!([
            { "id": "merge", "options": {} },
            { "id": "organize", "options": { "excludeByName": { "Time": true, "__name__": true }, "renameByName": names } },
        ]);
        let first = self.queries[0].0;
        panel["options"] =
            json!({ "showHeader": true, "sortBy": [{ "displayName": first, "desc": true }] });
    }
}

/// The expression as Grafana has it.
fn expand(expression: &str) -> String {
    let mut text = expression.to_owned();
    for (name, hop) in [
        ("receive", HopKind::Receive),
        ("target", HopKind::Target),
        ("poll", HopKind::Poll),
        ("close", HopKind::Close),
        ("analysis", HopKind::Analysis),
        ("sink", HopKind::Sink),
    ] {
        text = text.replace(&format!("lost at {name}"), &format!("reason!~\"{}\"", intended(hop)));
    }

    for (name, labels) in [
        ("instance", &["instance"][..]),
        ("origin", &["instance", "origin"]),
        ("target", &["instance", "origin", "target"]),
        ("sink", &["instance", "origin", "sink"]),
        ("flow", &["instance", "flow"]),
    ] {
        let chosen: Vec<_> = labels.iter().map(|label| format!("{label}=~\"${label}\"")).collect();
        text = text.replace(&format!("at {name}"), &chosen.join(","));
    }

    text.replace("[rate]", "[$__rate_interval]")
        .replace("[range]", "[$__range]")
        .replace("offset range", "offset $__range")
}

/// The reasons at a hop that a setting asks for, as a pattern.
fn intended(hop: HopKind) -> String {
    let reasons = Reason::at(hop).filter(|reason| reason.is_intended());
    reasons.map(Reason::label).collect::<Vec<_>>().join("|")
}
