//! `If`, `Loop` and `Scan`: operators that run bodies.

use std::collections::HashMap;

use super::node::{self, Input, Node, Shape, invalid};
use super::types::{Types, formals};
use super::{Fact, Found, Inference, Number, Reason, Scope, Walk, inputs};
use crate::proto::{GraphProto, NodeProto};
use crate::topology::bodies;

/// What the bodies of a node hold.
#[derive(Clone, Debug)]
pub(crate) struct Bodies {
    /// Those that may run, by their place among the node's bodies: several where only a run can
    /// tell which.
    pub(crate) alternatives: Vec<(usize, Inference)>,
    /// How often the one that runs is run; `None` where only a run can tell.
    pub(crate) trips: Option<u64>,
}

impl Walk<'_> {
    pub(super) fn control(
        &mut self,
        proto: &NodeProto,
        types: &Types<'_>,
        scope: &Scope<'_>,
        label: &str,
    ) -> Found {
        let version = self.model.opset(&proto.domain).unwrap_or(1);
        let node = Node { proto, version, block: self.block, inputs: inputs(proto, scope) };
        let body = Body { proto, types, scope, label };
        let found = match node.operator() {
            "If" => self.branches(&node, &body),
            "Loop" => self.repeat(&node, &body),
            "Scan" => self.scan(&node, &body),
            other => Err(Reason::Operator(other.to_owned())),
        };
        found.unwrap_or_else(Found::from)
    }

    fn branches(&mut self, node: &Node<'_>, at: &Body<'_>) -> Result<Found, Reason> {
        let condition = match node.inputs.first() {
            Some(Input::Known(fact)) => fact.data.as_ref().and_then(|data| data.first()),
            _ => None,
        };
        let wanted: &[&str] = match condition.map(|number| number.is_true()) {
            Some(true) => &["then_branch"],
            Some(false) => &["else_branch"],
            None => &["then_branch", "else_branch"],
        };
        let mut alternatives = Vec::new();
        for name in wanted {
            let (number, body) = at.named(name)?;
            let before = self.unknowns.len();
            let inference = self.body(at, name, body, HashMap::new());
            alternatives.push((number, body, inference, self.unknowns.split_off(before)));
        }
        // A branch that cannot run at these sizes is not the one that a run takes.
        if alternatives.iter().any(|(_, _, inference, _)| !inference.impossible) {
            alternatives.retain(|(_, _, inference, _)| !inference.impossible);
        }
        let impossible = alternatives.iter().all(|(_, _, inference, _)| inference.impossible);
        let reason = (alternatives.len() > 1).then_some(Reason::Condition);
        let returned: Vec<Vec<Option<Fact>>> = alternatives
            .iter()
            .map(|(_, body, inference, _)| at.returned(body, inference))
            .collect();
        let mut kept = Vec::new();
        for (number, _, inference, unknowns) in alternatives {
            self.unknowns.extend(unknowns);
            kept.push((number, inference));
        }
        let outputs = 0..at.proto.output.len();
        let shapes = outputs.map(|index| agreed(&returned, index)).collect();
        let bodies = Some(Bodies { alternatives: kept, trips: Some(1) });
        Ok(Found { shapes, operations: Some(0), bodies, reason, impossible })
    }

    /// `Loop`: trip count, condition, carried values → carried values, stacked values.
    fn repeat(&mut self, node: &Node<'_>, at: &Body<'_>) -> Result<Found, Reason> {
        let (number, body) = at.named("body")?;
        let carried: Vec<Option<Fact>> = carried(&node.inputs, 2);
        let counter =
            [crate::DataType::I64, crate::DataType::Bool].map(|dtype| Some(Fact::new(dtype, &[])));
        let given = counter.into_iter().chain(carried.iter().cloned());
        let inference = self.body(at, "body", body, bound(body, given));
        let returned = at.returned(body, &inference);

        let goes_on = goes_on(body, returned.first().and_then(Option::as_ref));
        let starts =
            !node.has(1) || node.numbers(1).is_ok_and(|data| data.iter().all(|n| n.is_true()));
        let limit = if node.has(0) { node.int(0).ok() } else { None };
        let trips = limit.filter(|_| goes_on && starts).map(|limit| limit.max(0) as u64);
        let (mut shapes, steady) = steady(&carried, returned.get(1..).unwrap_or_default());
        for fact in returned.iter().skip(1 + carried.len()) {
            let stacked = |fact: &Fact| {
                let mut dims = fact.dims.clone();
                dims.insert(0, node::size(trips?).ok()?);
                Some(Shape::from(dims))
            };
            shapes.push(fact.as_ref().filter(|_| steady).and_then(stacked));
        }
        let reason = match trips {
            _ if !steady => Some(unsteady(node, 2)),
            None => Some(Reason::Trips),
            Some(_) => None,
        };
        let trips = trips.filter(|_| steady);
        let bodies = Some(Bodies { alternatives: vec![(number, inference)], trips });
        Ok(Found { shapes, operations: Some(0), bodies, reason, impossible: false })
    }

    /// `Scan`: state, sequences → state, stacked values.
    fn scan(&mut self, node: &Node<'_>, at: &Body<'_>) -> Result<Found, Reason> {
        let (number, body) = at.named("body")?;
        let sequences = node.attribute_size("num_scan_inputs")?;
        let states = node.inputs.len().checked_sub(sequences);
        let states = states.ok_or_else(|| invalid("it has fewer inputs than it scans"))?;
        let axes = |name: &str, index: usize| {
            node.attribute_ints(name).and_then(|axes| axes.get(index)).copied().unwrap_or(0)
        };
        let mut trips = None;
        let mut given = carried(&node.inputs[..states], 0);
        for index in 0..sequences {
            let mut dims = node.dims(states + index)?.to_vec();
            let axis = node::axis(axes("scan_input_axes", index), dims.len())?;
            let steps = dims.remove(axis);
            if *trips.get_or_insert(steps) != steps {
                return Err(invalid("its sequences differ in length"));
            }
            given.push(Some(Fact::new(node.input(states + index)?.dtype, &dims)));
        }
        let trips = trips.ok_or_else(|| invalid("it scans nothing"))?;
        let carried = given[..states].to_vec();
        let inference = self.body(at, "body", body, bound(body, given.into_iter()));
        let returned = at.returned(body, &inference);
        let (mut shapes, steady) = steady(&carried, &returned);
        for (index, fact) in returned.iter().skip(states).enumerate() {
            let stacked = |fact: &Fact| {
                let mut dims = fact.dims.clone();
                let axis = node::axis(axes("scan_output_axes", index), dims.len() + 1).ok()?;
                dims.insert(axis, trips);
                Some(Shape::from(dims))
            };
            shapes.push(fact.as_ref().filter(|_| steady).and_then(stacked));
        }
        let reason = (!steady).then(|| unsteady(node, 0));
        let trips = steady.then_some(trips as u64);
        let bodies = Some(Bodies { alternatives: vec![(number, inference)], trips });
        Ok(Found { shapes, operations: Some(0), bodies, reason, impossible: false })
    }

    fn body(
        &mut self,
        at: &Body<'_>,
        name: &str,
        body: &GraphProto,
        given: HashMap<String, Fact>,
    ) -> Inference {
        let formals = formals(at.proto, |name| at.types.get(name));
        let types = Types::of_graph(self.model, body, &formals, Some(at.types));
        let place = format!(" in {name} of {}", at.label);
        self.graph(body, given, &types, Some(at.scope), &place)
    }
}

/// A node with bodies, and what is around it.
struct Body<'a> {
    proto: &'a NodeProto,
    types: &'a Types<'a>,
    scope: &'a Scope<'a>,
    label: &'a str,
}

impl<'a> Body<'a> {
    fn named(&self, name: &str) -> Result<(usize, &'a GraphProto), Reason> {
        let found =
            bodies(self.proto).enumerate().find(|(_, (attribute, _))| attribute.name == name);
        let missing = || invalid(format!("attribute `{name}` is missing"));
        found.map(|(number, (_, body))| (number, body)).ok_or_else(missing)
    }

    fn returned(&self, body: &GraphProto, inference: &Inference) -> Vec<Option<Fact>> {
        let scope = Scope { facts: &inference.facts, outer: Some(self.scope) };
        body.output.iter().map(|output| scope.get(&output.name).cloned()).collect()
    }
}

/// What is the same in every alternative.
fn agreed(returned: &[Vec<Option<Fact>>], index: usize) -> Option<Shape> {
    let mut alternatives = returned.iter().map(|facts| facts.get(index)?.as_ref());
    let first = alternatives.next()??;
    let mut data = first.data.clone();
    for other in alternatives {
        let other = other.filter(|other| other.dims == first.dims)?;
        data = data.filter(|data| other.data.as_ref() == Some(data));
    }
    Some(Shape { dims: first.dims.clone(), data })
}

/// Carried values: of the same shape in every run of the body, but not of the same contents.
fn carried(inputs: &[Input<'_>], skipped: usize) -> Vec<Option<Fact>> {
    let fact = |input: &Input<'_>| match input {
        Input::Known(fact) => Some(Fact::new(fact.dtype, &fact.dims)),
        _ => None,
    };
    inputs.iter().skip(skipped).map(fact).collect()
}

/// A body's inputs by name.
fn bound(body: &GraphProto, given: impl Iterator<Item = Option<Fact>>) -> HashMap<String, Fact> {
    let named = body.input.iter().zip(given);
    named.filter_map(|(input, fact)| Some((input.name.clone(), fact?))).collect()
}

/// The carried values if all of them keep their shape, and whether they do: what was found of
/// the body holds for every run of it only then.
fn steady(given: &[Option<Fact>], returned: &[Option<Fact>]) -> (Vec<Option<Shape>>, bool) {
    let mut returned = returned.iter();
    let keep = |given: &Option<Fact>| {
        let returned = returned.next()?.as_ref()?;
        let same = given.as_ref().is_some_and(|given| given.dims == returned.dims);
        same.then(|| Shape::from(returned.dims.clone()))
    };
    let shapes: Option<Vec<Shape>> = given.iter().map(keep).collect();
    match shapes {
        Some(shapes) => (shapes.into_iter().map(Some).collect(), true),
        // One that changes can change the others the next time.
        None => (given.iter().map(|_| None).collect(), false),
    }
}

/// Why what is carried from run to run is not of one shape.
fn unsteady(node: &Node<'_>, first: usize) -> Reason {
    let carried = first..node.inputs.len();
    let unknown = carried.filter_map(|index| node.optional(index).err()).next();
    unknown.unwrap_or(Reason::Unsteady)
}

/// Whether a loop's body always asks to go on: it says so, or hands back the condition it got.
fn goes_on(body: &GraphProto, condition: Option<&Fact>) -> bool {
    let constant = condition.and_then(|fact| fact.data.as_ref());
    if let Some(data) = constant {
        return data.iter().all(|number: &Number| number.is_true());
    }
    let (Some(given), Some(returned)) = (body.input.get(1), body.output.first()) else {
        return false;
    };
    let mut name = returned.name.as_str();
    while name != given.name {
        let identity = body.node.iter().find(|node| {
            node.op_type == "Identity" && node.output.first().is_some_and(|output| output == name)
        });
        match identity.and_then(|node| node.input.first()) {
            Some(input) => name = input,
            None => return false,
        }
    }
    true
}
