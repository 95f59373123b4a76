//! Where the parts of a plan's picture go: in columns, from left to right.
//!
//! A segment stands in the column after the last one that it takes from, the models in the last
//! column, in rows that keep families together. An arrow that skips columns holds a place in each
//! of them, so that it runs between boxes and not across them.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::{SharePlan, Source};

/// Width and height of a segment's box.
pub(super) const SEGMENT: (i64, i64) = (178, 84);
/// Width and height of a model's box.
pub(super) const MODEL: (i64, i64) = (230, 36);
/// Room for an arrow that passes by.
const PASSING: i64 = 20;
/// Between boxes of a column.
const GAP: i64 = 18;
/// Between columns: room for what is written on the arrows.
const BETWEEN: i64 = 132;
const MARGIN: i64 = 16;

/// Places for everything.
pub(super) struct Layout {
    /// The upper left corner of each segment, by position in the plan.
    pub(super) segments: Vec<(i64, i64)>,
    /// That of each model.
    pub(super) models: Vec<(i64, i64)>,
    pub(super) arrows: Vec<Arrow>,
    pub(super) width: i64,
    pub(super) height: i64,
}

/// What passes from one box to another.
pub(super) struct Arrow {
    pub(super) from: usize,
    pub(super) to: End,
    /// The names of the values: those of the segment that gives them, or the model's outputs.
    pub(super) values: BTreeSet<String>,
    /// The points that it goes through: it is level at each.
    pub(super) points: Vec<(i64, i64)>,
}

/// Where an arrow ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    Segment(usize),
    Model(usize),
}

/// Something that takes room in a column.
#[derive(Clone, Copy)]
enum Item {
    Segment(usize),
    /// The arrow of this number, passing by.
    Passing(usize),
}

impl Layout {
    pub(super) fn new(plan: &SharePlan) -> Layout {
        let columns = columns(plan);
        let last = columns.iter().max().map_or(0, |column| column + 1);
        let rows = rows(plan);
        let mut layout = Layout {
            segments: vec![(0, 0); plan.segments.len()],
            models: rows.iter().map(|row| (left(last), row * (SEGMENT.1 + GAP))).collect(),
            arrows: arrows(plan),
            width: left(last) + MODEL.0 + MARGIN,
            height: 0,
        };
        for model in &mut layout.models {
            model.1 += (SEGMENT.1 - MODEL.1) / 2;
        }
        let mut passing: BTreeMap<usize, Vec<i64>> = BTreeMap::new();
        for column in 0..last {
            let of_column = (0..plan.segments.len()).filter(|segment| columns[*segment] == column);
            let mut items: Vec<Item> = of_column.map(Item::Segment).collect();
            for (number, arrow) in layout.arrows.iter().enumerate() {
                let until = match arrow.to {
                    End::Segment(to) => columns[to],
                    End::Model(_) => last,
                };
                if columns[arrow.from] < column && column < until {
                    items.push(Item::Passing(number));
                }
            }
            layout.place(plan, column, items, &mut passing);
        }
        layout.keep_margin(&mut passing);
        layout.route(&columns, &passing);
        layout
    }

    /// Places a column: everything beside the models that it is for, as far as there is room.
    fn place(
        &mut self,
        plan: &SharePlan,
        column: usize,
        items: Vec<Item>,
        passing: &mut BTreeMap<usize, Vec<i64>>,
    ) {
        let mut wishes: Vec<(i64, Item)> =
            items.into_iter().map(|item| (self.wish(plan, item), item)).collect();
        wishes.sort_by_key(|(wish, _)| *wish);
        let mut placed = Vec::new();
        let mut free = i64::MIN;
        for (wish, item) in wishes {
            let height = if matches!(item, Item::Segment(_)) { SEGMENT.1 } else { PASSING };
            let middle = wish.max(free.saturating_add(height / 2));
            free = middle + height / 2 + GAP;
            placed.push((middle, middle - wish, item));
        }
        // What did not fit was pushed down; half of that is taken back from all.
        let pushed: i64 = placed.iter().map(|(_, pushed, _)| *pushed).max().unwrap_or(0);
        for (middle, _, item) in placed {
            let middle = middle - pushed / 2;
            match item {
                Item::Segment(segment) => {
                    self.segments[segment] = (left(column), middle - SEGMENT.1 / 2);
                }
                Item::Passing(arrow) => passing.entry(arrow).or_default().push(middle),
            }
        }
    }

    /// Where the middle of something would best be.
    fn wish(&self, plan: &SharePlan, item: Item) -> i64 {
        let middle = |model: usize| self.models[model].1 + MODEL.1 / 2;
        let of_segment = |segment: usize| {
            let users = &plan.segments[segment].users;
            users.iter().map(|user| middle(*user)).sum::<i64>() / users.len().max(1) as i64
        };
        match item {
            Item::Segment(segment) => of_segment(segment),
            Item::Passing(arrow) => match self.arrows[arrow].to {
                End::Segment(segment) => of_segment(segment),
                End::Model(model) => middle(model),
            },
        }
    }

    /// Moves all so that the uppermost is at the margin, and tells the height.
    fn keep_margin(&mut self, passing: &mut BTreeMap<usize, Vec<i64>>) {
        let tops = self.segments.iter().chain(&self.models).map(|(_, top)| *top);
        let places = passing.values().flatten().map(|middle| middle - PASSING / 2);
        let down = MARGIN - tops.chain(places).min().unwrap_or(0);
        self.segments.iter_mut().chain(&mut self.models).for_each(|(_, top)| *top += down);
        passing.values_mut().flatten().for_each(|middle| *middle += down);
        let segments = self.segments.iter().map(|(_, top)| top + SEGMENT.1);
        let models = self.models.iter().map(|(_, top)| top + MODEL.1);
        let places = passing.values().flatten().map(|middle| middle + PASSING / 2);
        self.height = segments.chain(models).chain(places).max().unwrap_or(0) + MARGIN;
    }

    /// Leads each arrow from its own place on one box to its own place on the other.
    fn route(&mut self, columns: &[usize], passing: &BTreeMap<usize, Vec<i64>>) {
        let starts =
            self.ports(|arrow| End::Segment(arrow.from), |layout, arrow| layout.middle(arrow.to));
        let ends =
            self.ports(|arrow| arrow.to, |layout, arrow| layout.middle(End::Segment(arrow.from)));
        for number in 0..self.arrows.len() {
            let Arrow { from, to, .. } = self.arrows[number];
            let mut points = vec![(self.segments[from].0 + SEGMENT.0, starts[number])];
            let places = passing.get(&number).into_iter().flatten();
            for (column, middle) in (columns[from] + 1..).zip(places) {
                points.push((left(column), *middle));
                points.push((left(column) + SEGMENT.0, *middle));
            }
            let end = match to {
                End::Segment(segment) => self.segments[segment].0,
                End::Model(model) => self.models[model].0,
            };
            points.push((end, ends[number]));
            self.arrows[number].points = points;
        }
    }

    /// The height at which each arrow meets a box: they are spread over its side, in the order of
    /// what is at the other end.
    fn ports(&self, of: impl Fn(&Arrow) -> End, far: impl Fn(&Layout, &Arrow) -> i64) -> Vec<i64> {
        let mut at: BTreeMap<End, Vec<(i64, usize)>> = BTreeMap::new();
        for (number, arrow) in self.arrows.iter().enumerate() {
            at.entry(of(arrow)).or_default().push((far(self, arrow), number));
        }
        let mut ports = vec![0; self.arrows.len()];
        for (end, mut arrows) in at {
            arrows.sort_unstable();
            let (top, height) = match end {
                End::Segment(segment) => (self.segments[segment].1, SEGMENT.1),
                End::Model(model) => (self.models[model].1, MODEL.1),
            };
            let count = arrows.len() as i64;
            for (place, (_, number)) in arrows.into_iter().enumerate() {
                ports[number] = top + height * (place as i64 + 1) / (count + 1);
            }
        }
        ports
    }

    fn middle(&self, end: End) -> i64 {
        match end {
            End::Segment(segment) => self.segments[segment].1 + SEGMENT.1 / 2,
            End::Model(model) => self.models[model].1 + MODEL.1 / 2,
        }
    }
}

fn left(column: usize) -> i64 {
    MARGIN + column as i64 * (SEGMENT.0 + BETWEEN)
}

/// The column of each segment. Those that it takes from come before it in the plan.
fn columns(plan: &SharePlan) -> Vec<usize> {
    let mut columns = vec![0; plan.segments.len()];
    for arrow in arrows(plan) {
        if let End::Segment(to) = arrow.to {
            columns[to] = columns[to].max(columns[arrow.from] + 1);
        }
    }
    columns
}

/// The row of each model: those that begin with the same segment stand together.
fn rows(plan: &SharePlan) -> Vec<i64> {
    let first = |model: &usize| plan.models[*model].steps.first().map(|step| step.segment);
    let mut order: Vec<usize> = (0..plan.models.len()).collect();
    order.sort_by_key(first);
    let mut rows = vec![0; order.len()];
    for (row, model) in order.into_iter().enumerate() {
        rows[model] = row as i64;
    }
    rows
}

/// The arrows, by where they start: models that use two segments alike share one.
fn arrows(plan: &SharePlan) -> Vec<Arrow> {
    let mut found: BTreeMap<(usize, End), BTreeSet<String>> = BTreeMap::new();
    for (model, route) in plan.models.iter().enumerate() {
        for step in &route.steps {
            for source in step.inputs.values() {
                let Source::Step(from) = source else { continue };
                let giver = route.steps[from.step].segment;
                // One that feeds itself has no column after its own.
                if giver != step.segment {
                    let values = found.entry((giver, End::Segment(step.segment))).or_default();
                    values.insert(from.output.clone());
                }
            }
        }
        for (output, from) in &route.outputs {
            let giver = route.steps[from.step].segment;
            found.entry((giver, End::Model(model))).or_default().insert(output.clone());
        }
    }
    let arrow = |((from, to), values)| Arrow { from, to, values, points: Vec::new() };
    found.into_iter().map(arrow).collect()
}
