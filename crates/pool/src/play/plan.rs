//! From models in play to routes: what they have in common is cut out and kept in the store.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use holdfast_devices::cpu::Target;
use holdfast_devices::{LiftedInput, Segment};
use holdfast_graph::infer::{Bindings, Inference, infer};
use holdfast_graph::share::{
    self, Member, Route, Segment as Piece, SegmentKind, SharePlan, Source, Step, share,
};
use holdfast_graph::{Digest, Fingerprints, Model, WeightId, WeightTable, declare};
use holdfast_models::{Store, StoredGraph, hashed_like};

use super::table::InPlay;
use super::weights::{Composite, Holding, Holdings, holdings};
use super::{Failed, Means, Stage};
use crate::pool::explain;
use crate::route::{self, Prepared, Proven, StepOutput};

/// A lowered model, read and hashed.
pub(crate) struct Analysed {
    stored: StoredGraph,
    model: Model,
    weights: WeightTable,
    prints: Fingerprints,
}

/// How models run together.
pub(crate) struct Planned {
    /// Identifies what is run, in whichever order the models came.
    pub(crate) id: Digest,
    /// Those that share something.
    pub(crate) routes: HashMap<Digest, Arc<Prepared>>,
    /// Outputs that depend on chance, by model.
    by_chance: HashSet<(Digest, String)>,
    /// Where the models are cut, and how their weights are held, in words.
    pub(crate) cuts: String,
}

impl Planned {
    /// The routes that were proven anywhere.
    pub(crate) fn proven(&self) -> impl Iterator<Item = &Arc<Prepared>> {
        let is_proven = |route: &&Arc<Prepared>| {
            route.shared.as_ref().is_some_and(|shared| shared.proven.anywhere())
        };
        self.routes.values().filter(is_proven)
    }

    /// Whether any was.
    pub(crate) fn is_proven(&self) -> bool {
        self.proven().next().is_some()
    }

    /// Whether an output of a model is another one each time.
    pub(crate) fn is_by_chance(&self, model: &Digest, output: &str) -> bool {
        self.by_chance.contains(&(*model, output.to_owned()))
    }
}

/// What was found out about each model on the way.
pub(super) type AllAnalysed = Vec<(Digest, Arc<Analysed>)>;

/// Plans how models run together; `None` if they have nothing in common that is worth it.
pub(super) fn plan(
    store: &Store,
    means: &Means,
    stage: &Stage,
    models: Vec<(Digest, InPlay)>,
) -> Result<(Option<Planned>, AllAnalysed), Failed> {
    let mut analysed: AllAnalysed = Vec::new();
    for (digest, model) in &models {
        let known = model.analysed.clone();
        let known = known.map_or_else(|| Analysed::new(store, &model.whole).map(Arc::new), Ok);
        analysed.push((*digest, known.map_err(|why| Failed::with(*digest, why))?));
    }
    let names: Vec<String> = models.iter().map(|(digest, _)| digest.to_string()).collect();
    let sizes: Vec<Bindings> = models.iter().map(|(_, model)| sizes(model)).collect();
    let members: Vec<Member<'_>> = analysed
        .iter()
        .zip(names.iter().zip(&sizes))
        .map(|((_, analysed), (name, sizes))| Member {
            name,
            model: &analysed.model,
            prints: &analysed.prints,
            sizes,
        })
        .collect();
    let plan = share(&members, &means.prices).map_err(|error| {
        let model = models.iter().find(|(digest, _)| digest.to_string() == error.model);
        Failed { why: explain(&error), model: model.map(|(digest, _)| *digest) }
    })?;
    let analysed_models: Vec<&Analysed> =
        analysed.iter().map(|(_, analysed)| &**analysed).collect();
    let tables = tables(&plan, &analysed_models);
    let holdings = holdings(stage.target, &plan.segments, &tables, means);
    let planner = Planner {
        store,
        stage,
        models: &models,
        analysed: &analysed_models,
        plan: &plan,
        tables: &tables,
        holdings: &holdings,
    };
    let planned = planner.routes().map_err(Failed::here)?;
    Ok((Some(planned).filter(|planned| !planned.routes.is_empty()), analysed))
}

/// The weights of every piece, of which those of the models are known.
fn tables(plan: &SharePlan, analysed: &[&Analysed]) -> Vec<WeightTable> {
    let of = |piece: &Piece| {
        let parents = piece.users.iter().map(|&user| analysed[user]);
        let entries = parents.flat_map(|parent| parent.weights.entries());
        let known = entries.map(|weight| (&weight.tensor.bytes()[..], weight.content));
        hashed_like(&piece.model, known)
    };
    plan.segments.iter().map(of).collect()
}

/// The sizes that a model was asked with.
fn sizes(model: &InPlay) -> Bindings {
    let inputs = model.sample.iter();
    inputs.fold(Bindings::new(), |sizes, (name, tensor)| sizes.shape(name, tensor.dims()))
}

impl Analysed {
    fn new(store: &Store, whole: &Prepared) -> Result<Analysed, String> {
        let (_, segment) = whole.segments.first().ok_or("it has no segments")?;
        let stored = segment.graph.clone();
        let (model, weights) = store.open_hashed(&stored).map_err(|error| explain(&error))?;
        let prints = Fingerprints::new(&model, &weights);
        Ok(Analysed { stored, model, weights, prints })
    }
}

struct Planner<'a> {
    store: &'a Store,
    stage: &'a Stage,
    models: &'a [(Digest, InPlay)],
    analysed: &'a [&'a Analysed],
    plan: &'a SharePlan,
    tables: &'a [WeightTable],
    holdings: &'a Holdings,
}

impl Planner<'_> {
    fn routes(&self) -> Result<Planned, String> {
        let mut kept = Kept::default();
        let mut routes = HashMap::new();
        for ((digest, model), route) in self.models.iter().zip(&self.plan.models) {
            if route.steps.iter().any(|step| self.is_shared(step)) {
                let prepared = self.route(model, route, &mut kept)?;
                routes.insert(*digest, Arc::new(prepared));
            }
        }
        let mut ids: Vec<String> = routes.values().map(|route| route.id.0.to_string()).collect();
        ids.sort_unstable();
        let id = Digest::of(ids.join(" ").as_bytes());
        Ok(Planned { id, routes, by_chance: self.by_chance(), cuts: self.cuts() })
    }

    /// The outputs that no two runs give alike.
    fn by_chance(&self) -> HashSet<(Digest, String)> {
        let models = self.models.iter().zip(self.analysed);
        let outputs = models.flat_map(|((digest, model), analysed)| {
            let names = model.whole.outputs.iter().map(|(name, _)| name);
            let by_chance = names.filter(|name| analysed.prints.get(name).is_none());
            by_chance.map(|name| (*digest, name.clone()))
        });
        outputs.collect()
    }

    /// What is other than in the models alone, for whoever has to find out why bits differ.
    fn cuts(&self) -> String {
        let crossing = self.plan.trunks().flat_map(|trunk| trunk.output_bytes.keys().cloned());
        let crossing: Vec<String> = crossing.collect();
        let lifted = self.holdings.of_piece.iter().flat_map(|holding| match holding {
            Holding::Lifted(lifted) => lifted.weights.as_slice(),
            Holding::Alone | Holding::Composed { .. } => &[],
        });
        let lifted: HashSet<WeightId> = lifted.map(|weight| weight.id).collect();
        let mut cuts = Vec::new();
        if !crossing.is_empty() {
            cuts.push(format!("cut at {}", crossing.join(", ")));
        }
        if !lifted.is_empty() {
            cuts.push(format!("{} weights fed as inputs", lifted.len()));
        }
        for composite in &self.holdings.composites {
            cuts.push(format!("{} pieces in one graph", composite.pieces.len()));
        }
        cuts.join(", ")
    }

    /// Whether what a step runs, or what it holds, is there for several models.
    fn is_shared(&self, step: &Step) -> bool {
        self.plan.segments[step.segment].kind == SegmentKind::Trunk
            || !matches!(self.holdings.of_piece[step.segment], Holding::Alone)
    }

    fn route(&self, model: &InPlay, route: &Route, kept: &mut Kept) -> Result<Prepared, String> {
        let mut segments: Vec<Segment> = Vec::new();
        let mut steps = Vec::new();
        for (number, step) in route.steps.iter().enumerate() {
            let segment = self.segment(step.segment, kept)?;
            let place = segments.iter().position(|other| *other == segment);
            let place = place.unwrap_or_else(|| {
                segments.push(segment);
                segments.len() - 1
            });
            let piece = &self.plan.segments[step.segment];
            let trunk = piece.kind == SegmentKind::Trunk;
            let taken = taken(route, number);
            let given = piece.model.outputs().into_iter().map(|value| value.name);
            let outputs = given.filter(|name| trunk || taken.contains(name.as_str()));
            let outputs = outputs.map(|name| self.name(step.segment, &name)).collect();
            let inputs: Vec<(String, route::Source)> = step
                .inputs
                .iter()
                .map(|(name, from)| (name.clone(), self.source(route, from)))
                .collect();
            let inputs = match &self.holdings.of_piece[step.segment] {
                Holding::Alone | Holding::Lifted(_) => inputs,
                Holding::Composed { composite, part } => {
                    self.holdings.composites[*composite].inputs(*part, &inputs)
                }
            };
            steps.push(route::Step { segment: place, inputs, outputs, trunk });
        }
        // In the order of the model.
        let outputs = model.whole.outputs.iter().filter_map(|(name, _)| {
            let from = route.outputs.get(name)?;
            Some((name.clone(), self.output(route, from)))
        });
        let (whole, proven) = (model.whole.clone(), Arc::new(Proven::default()));
        Ok(Prepared::shared(whole, proven, segments, steps, outputs.collect()))
    }

    /// What an output of a piece is called where the piece is held.
    fn name(&self, piece: usize, output: &str) -> String {
        let composed = match &self.holdings.of_piece[piece] {
            Holding::Alone | Holding::Lifted(_) => None,
            Holding::Composed { composite, part } => {
                self.holdings.composites[*composite].parts[*part].outputs.get(output)
            }
        };
        composed.map_or(output, String::as_str).to_owned()
    }

    fn output(&self, route: &Route, from: &share::StepOutput) -> StepOutput {
        let piece = route.steps[from.step].segment;
        StepOutput { step: from.step, output: self.name(piece, &from.output) }
    }

    fn source(&self, route: &Route, from: &Source) -> route::Source {
        match from {
            Source::Input { name, casts } => {
                route::Source::Input { name: name.clone(), casts: casts.clone() }
            }
            Source::Step(from) => route::Source::Step(self.output(route, from)),
        }
    }

    /// What is loaded for a piece, in the store.
    fn segment(&self, number: usize, kept: &mut Kept) -> Result<Segment, String> {
        let piece = &self.plan.segments[number];
        match &self.holdings.of_piece[number] {
            Holding::Alone => once(kept, Made::Piece(number), || {
                let mut by = format!("piece {}", piece.id);
                let model = self.with_sizes(piece);
                for (name, size) in &self.stage.dims {
                    by.push_str(&format!(" {name:?}={size}"));
                }
                self.keep(&[number], &by, &model, &self.tables[number])
            }),
            Holding::Lifted(lifted) => once(kept, Made::Piece(number), || {
                let table = &self.tables[number];
                let lifted_inputs = LiftedInput::of(lifted, table);
                let mut names: Vec<String> =
                    lifted.weights.iter().map(|weight| weight.id.0.to_string()).collect();
                names.sort_unstable();
                let names = Digest::of(names.join(" ").as_bytes());
                let by = format!("piece {} without {names}", piece.id);
                let left = hashed_like(&lifted.model, known(table));
                let segment = self.keep(&[number], &by, &lifted.model, &left)?;
                Ok(Segment { lifted: lifted_inputs, ..segment })
            }),
            Holding::Composed { composite, .. } => once(kept, Made::Composite(*composite), || {
                let Composite { model, pieces, .. } = &self.holdings.composites[*composite];
                let ids: Vec<String> =
                    pieces.iter().map(|&piece| self.plan.segments[piece].id.to_string()).collect();
                let by = format!("composite in stages of {}", ids.join(" "));
                let table = hashed_like(model, pieces.iter().flat_map(|&p| known(&self.tables[p])));
                self.keep(pieces, &by, model, &table)
            }),
        }
    }

    /// A piece as the target needs it: WebNN compiles for fixed sizes, also of what crosses.
    fn with_sizes(&self, piece: &Piece) -> Model {
        if self.stage.target != Target::WebNn {
            return piece.model.clone();
        }
        let of_user =
            |&user: &usize| infer(&self.analysed[user].model, &sizes(&self.models[user].1)).ok();
        let found: Vec<Inference> = piece.users.iter().filter_map(of_user).collect();
        declare(&piece.model, |input| {
            found.iter().find_map(|found| Some(found.facts.get(input)?.dims.as_slice()))
        })
    }

    /// Keeps a graph that was made of pieces, unless it is there.
    fn keep(
        &self,
        pieces: &[usize],
        by: &str,
        model: &Model,
        weights: &WeightTable,
    ) -> Result<Segment, String> {
        let users = pieces.iter().flat_map(|&piece| &self.plan.segments[piece].users);
        let users: BTreeSet<usize> = users.copied().collect();
        let &first = users.first().ok_or("a piece that nobody uses")?;
        let (original, in_play) = &self.models[first];
        let by = format!("{by} for {:?}", self.stage.target);
        let kept = self.store.derived(original, &by).map_err(|error| explain(&error))?;
        let stored: Vec<&StoredGraph> = users.iter().map(|&u| &self.analysed[u].stored).collect();
        let graph = match kept {
            Some(kept) => kept,
            None => self
                .store
                .put_pieced(original, &by, model, weights, &stored)
                .map_err(|error| explain(&error))?,
        };
        let (dims, kind) = (self.stage.dims.clone(), in_play.whole.kind);
        Ok(Segment { dims, kind, ..Segment::new(graph) })
    }
}

/// Where weights lie, and their digests.
fn known(table: &WeightTable) -> impl Iterator<Item = (&[u8], Digest)> {
    table.entries().iter().map(|weight| (&weight.tensor.bytes()[..], weight.content))
}

/// What was put into the store already.
type Kept = HashMap<Made, Segment>;

/// What a segment was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Made {
    Piece(usize),
    Composite(usize),
}

/// The segment of a piece or composite, made once.
fn once(
    kept: &mut Kept,
    of: Made,
    make: impl FnOnce() -> Result<Segment, String>,
) -> Result<Segment, String> {
    if let Some(segment) = kept.get(&of) {
        return Ok(segment.clone());
    }
    let segment = make()?;
    kept.insert(of, segment.clone());
    Ok(segment)
}

/// What later steps of a route, or its outputs, take of a step.
fn taken(route: &Route, number: usize) -> HashSet<&str> {
    let sources = route.steps.iter().flat_map(|step| step.inputs.values());
    let between = sources.filter_map(|source| match source {
        Source::Step(from) => Some(from),
        Source::Input { .. } => None,
    });
    let all = between.chain(route.outputs.values());
    all.filter(|from| from.step == number).map(|from| from.output.as_str()).collect()
}
