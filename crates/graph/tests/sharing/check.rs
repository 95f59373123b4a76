//! Plans for models, checked: a plan that is wrong in any way fails here.

use std::collections::BTreeMap;

use holdfast_graph::infer::Bindings;
use holdfast_graph::proto::NodeProto;
use holdfast_graph::share::{Member, Prices, SegmentKind, SharePlan, Source, StepOutput, share};
use holdfast_graph::{Fingerprints, Model, Structure, Tensor, WeightTable};
use holdfast_testkit::attribute::int;
use holdfast_testkit::random::{EvaluateError, evaluate, sample_inputs, transform};

/// Sizes for all models of the testkit.
pub(crate) fn sizes() -> Bindings {
    let batches = ["batch", "text_batch", "image_batch"].map(|name| (name, 2));
    let lengths = [("sequence", 16), ("past_sequence", 8), ("total_sequence", 24)];
    batches.into_iter().chain(lengths).collect()
}

/// Plans as if launches and transfers were free, and checks the plan.
pub(crate) fn plan(models: &[&Model]) -> SharePlan {
    plan_at(models, &Prices::free())
}

pub(crate) fn plan_at(models: &[&Model], prices: &Prices) -> SharePlan {
    let prints: Vec<Fingerprints> =
        models.iter().map(|model| Fingerprints::new(model, &WeightTable::new(model))).collect();
    let plan = plan_with(models, &prints, &sizes(), prices);
    for (number, model) in models.iter().enumerate() {
        check_structure(&plan, number, model, &prints[number]);
        check_bits(&plan, number, model);
    }
    plan
}

pub(crate) fn plan_with(
    models: &[&Model],
    prints: &[Fingerprints],
    sizes: &Bindings,
    prices: &Prices,
) -> SharePlan {
    let names: Vec<String> = (0..models.len()).map(|number| format!("model-{number}")).collect();
    let members: Vec<Member<'_>> = (0..models.len())
        .map(|n| Member { name: &names[n], model: models[n], prints: &prints[n], sizes })
        .collect();
    let plan = share(&members, prices).unwrap();
    check_form(&plan);
    let reversed: Vec<Member<'_>> = members.iter().rev().copied().collect();
    assert_eq!(share(&reversed, prices).unwrap().id(), plan.id(), "the order makes no difference");
    plan
}

/// What holds for every plan.
fn check_form(plan: &SharePlan) {
    for (number, segment) in plan.segments.iter().enumerate() {
        let uses = plan.models.iter().flat_map(|route| &route.steps);
        let uses = uses.filter(|step| step.segment == number).count();
        assert_eq!(uses > 1, segment.kind == SegmentKind::Trunk, "{number}: {:?}", segment.kind);
        assert!(uses > 0, "segment {number} is of no use");
        let uses_it = |user: &usize| plan.models[*user].steps.iter().any(|s| s.segment == number);
        let users: Vec<usize> = (0..plan.models.len()).filter(uses_it).collect();
        assert_eq!(segment.users, users);
    }
    for route in &plan.models {
        for (number, step) in route.steps.iter().enumerate() {
            let inputs = plan.segments[step.segment].model.inputs();
            let mut names: Vec<&String> = inputs.iter().map(|input| &input.name).collect();
            names.sort();
            assert_eq!(step.inputs.keys().collect::<Vec<_>>(), names);
            for source in step.inputs.values() {
                let Source::Step(from) = source else { continue };
                assert!(from.step < number && has_output(plan, &route.steps, from));
            }
        }
        assert!(route.outputs.values().all(|from| has_output(plan, &route.steps, from)));
    }
}

fn has_output(plan: &SharePlan, steps: &[holdfast_graph::share::Step], from: &StepOutput) -> bool {
    let outputs = plan.segments[steps[from.step].segment].model.outputs();
    outputs.iter().any(|output| output.name == from.output)
}

/// Puts the steps of a model together as one model again, and compares what its outputs are.
fn check_structure(plan: &SharePlan, number: usize, model: &Model, prints: &Fingerprints) {
    let (again, _) = put_together(plan, number, model);
    let found = Fingerprints::new(&again, &WeightTable::new(&again));
    for output in model.outputs() {
        let (name, found) = (&output.name, found.get(&output.name));
        assert_eq!(found, prints.get(name), "output `{name}` of model {number}");
    }
}

/// The steps of a model as one model, and what became of each segment's names.
fn put_together(plan: &SharePlan, number: usize, model: &Model) -> (Model, Vec<transform::Names>) {
    let route = &plan.models[number];
    let mut proto = model.proto().clone();
    let graph = proto.graph.as_mut().unwrap();
    let weights: Vec<String> = graph.initializer.iter().map(|t| t.name.clone()).collect();
    graph.input.retain(|input| !weights.contains(&input.name));
    graph.node.clear();
    graph.initializer.clear();
    graph.sparse_initializer.clear();
    graph.value_info.clear();
    let mut renamed = Vec::new();
    for (index, step) in route.steps.iter().enumerate() {
        let segment = &plan.segments[step.segment].model;
        let (piece, names) = transform::rename(segment, (number * 1000 + index) as u64 + 1);
        for (input, source) in &step.inputs {
            let (from, casts) = match source {
                Source::Input { name, casts } => (name.clone(), casts.clone()),
                Source::Step(from) => (renamed_output(&renamed, from), Vec::new()),
            };
            let cast = casts.iter().enumerate().fold(from, |from, (which, cast)| {
                let to = format!("{}_cast_{which}", names[input]);
                let mut node = unary("Cast", &from, &to);
                node.attribute.push(int("to", i64::from(cast.to_onnx())));
                graph.node.push(node);
                to
            });
            graph.node.push(unary("Identity", &cast, &names[input]));
        }
        let piece = piece.into_proto().graph.unwrap();
        graph.node.extend(piece.node);
        graph.initializer.extend(piece.initializer);
        graph.sparse_initializer.extend(piece.sparse_initializer);
        renamed.push(names);
    }
    let mut outputs = graph.output.clone();
    outputs.dedup_by_key(|output| output.name.clone());
    for output in outputs {
        let from = renamed_output(&renamed, &route.outputs[&output.name]);
        if graph.input.iter().any(|input| input.name == output.name) {
            // An input that is returned as it is: nothing can be put in its place.
            continue;
        }
        graph.node.push(unary("Identity", &from, &output.name));
    }
    (Model::from_proto(proto).unwrap(), renamed)
}

fn renamed_output(renamed: &[transform::Names], from: &StepOutput) -> String {
    renamed[from.step][&from.output].clone()
}

fn unary(operator: &str, from: &str, to: &str) -> NodeProto {
    NodeProto {
        input: vec![from.to_owned()],
        output: vec![to.to_owned()],
        op_type: operator.to_owned(),
        ..NodeProto::default()
    }
}

/// Runs the steps, where the testkit knows all operators, and compares bits.
fn check_bits(plan: &SharePlan, number: usize, model: &Model) {
    let inputs = sample_inputs(model, 7);
    if let Ok(expected) = evaluate(model, &inputs) {
        assert_eq!(bits(&run(plan, number, &inputs).unwrap()), bits(&expected), "{number}");
    }
}

pub(crate) fn run(
    plan: &SharePlan,
    number: usize,
    inputs: &BTreeMap<String, Tensor>,
) -> Result<BTreeMap<String, Tensor>, EvaluateError> {
    let route = &plan.models[number];
    let mut done: Vec<BTreeMap<String, Tensor>> = Vec::new();
    for step in &route.steps {
        let feed = step.inputs.iter().map(|(input, source)| {
            let tensor = match source {
                Source::Input { name, casts } if casts.is_empty() => &inputs[name],
                Source::Input { .. } => panic!("random graphs have no casts"),
                Source::Step(from) => &done[from.step][&from.output],
            };
            (input.clone(), tensor.clone())
        });
        done.push(evaluate(&plan.segments[step.segment].model, &feed.collect())?);
    }
    let found = route.outputs.iter();
    Ok(found.map(|(name, from)| (name.clone(), done[from.step][&from.output].clone())).collect())
}

fn bits(outputs: &BTreeMap<String, Tensor>) -> Vec<(&String, &[usize], Vec<u8>)> {
    outputs.iter().map(|(name, tensor)| (name, tensor.dims(), tensor.bytes().to_vec())).collect()
}

/// The segments as a line each: kind, operators and users.
pub(crate) fn summary(plan: &SharePlan) -> Vec<String> {
    let line = |segment: &holdfast_graph::share::Segment| {
        let nodes = &segment.model.graph().node;
        let operators: Vec<&str> = nodes.iter().map(|node| node.op_type.as_str()).collect();
        format!("{:?} {:?} of {:?}", segment.kind, segment.users, operators.join(" "))
    };
    plan.segments.iter().map(line).collect()
}

/// The structures of the values that a model takes from trunks, or trunks compute for it.
pub(crate) fn structures_in_trunks(
    plan: &SharePlan,
    number: usize,
    model: &Model,
) -> Vec<Structure> {
    let (again, renamed) = put_together(plan, number, model);
    let prints = Fingerprints::new(&again, &WeightTable::new(&again));
    let mut found = Vec::new();
    for (step, names) in plan.models[number].steps.iter().zip(renamed) {
        let segment = &plan.segments[step.segment];
        if segment.kind == SegmentKind::Trunk {
            let outputs = segment.model.graph().node.iter().flat_map(|node| &node.output);
            found.extend(outputs.filter_map(|name| Some(prints.get(&names[name])?.structure)));
        }
    }
    found
}
