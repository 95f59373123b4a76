//! What shape inference says of single operators: each row is an operator, what it is given,
//! its attributes and what must come out.

mod rows;

use holdfast_graph::cost::cost;
use holdfast_graph::infer::{Bindings, Fact, Number, infer};
use holdfast_graph::proto::AttributeProto;
use holdfast_graph::{DataType, Model, Tensor};
use holdfast_testkit::{Builder, Numbers, attribute, fixed};

/// Operator, inputs, attributes, outputs.
///
/// A value is `type[dimensions]`, with contents after `=` where they are known, `-` where an
/// input is left out. `Operator@11` is the operator of that opset. Instead of outputs, `?text`
/// is part of the reason why they are not known.
type Row = (&'static str, &'static str, &'static str, &'static str);

#[track_caller]
fn check(rows: &[Row]) {
    for &(operator, inputs, attributes, expected) in rows {
        let row = format!("{operator} of {inputs} with {attributes}");
        let outputs = if expected.starts_with('?') { 1 } else { expected.split(' ').count() };
        let model = model(operator, inputs, attributes, outputs).expect(&row);
        let found = infer(&model, &Bindings::new()).expect("the inputs have fixed shapes");
        let node = &model.graph().node[0];
        match expected.strip_prefix('?') {
            Some(part) => {
                let reason = found.unknowns.first().map(|unknown| unknown.reason.to_string());
                let reason = reason.unwrap_or_else(|| panic!("{row} must not be known"));
                assert!(reason.contains(part), "{row}: {reason}");
            }
            None => {
                assert_eq!(found.unknowns, [], "{row}");
                let outputs = node.output.iter().map(|name| show(&found.facts[name]));
                assert_eq!(outputs.collect::<Vec<_>>().join(" "), expected, "{row}");
            }
        }
        disturb(operator, inputs, attributes, outputs);
    }
}

/// Whatever the numbers of a row become, counting it gives an answer or an error.
fn disturb(operator: &str, inputs: &str, attributes: &str, outputs: usize) {
    let mut numbers = Numbers::labelled(1, &format!("{operator} {inputs} {attributes}"));
    for _ in 0..50 {
        let (inputs, attributes) = disturbed(&mut numbers, inputs, attributes);
        if let Some(model) = model(operator, &inputs, &attributes, outputs) {
            // A size that no memory holds is an error; nothing may panic.
            drop(cost(&model, &Bindings::new()));
        }
    }
}

fn disturbed(numbers: &mut Numbers, inputs: &str, attributes: &str) -> (String, String) {
    const EDGES: &[&str] = &[
        "0",
        "1",
        "2",
        "3",
        "-1",
        "-2",
        "7",
        "1048576",
        "1099511627776",
        "281474976710656",
        "9223372036854775807",
        "-9223372036854775808",
    ];
    let mut change = |text: &str| {
        let digits = |letter: char| letter.is_ascii_digit() || letter == '-';
        let mut changed = String::new();
        let mut rest = text;
        while let Some(start) = rest.find(|letter: char| "[,=".contains(letter)) {
            let (before, after) = rest.split_at(start + 1);
            let length = after.find(|letter| !digits(letter)).unwrap_or(after.len());
            changed.push_str(before);
            let edge = numbers.once_in(4).then(|| numbers.pick(EDGES)).flatten();
            let kept = &after[..length];
            changed.push_str(if kept.is_empty() { kept } else { edge.unwrap_or(&kept) });
            rest = &after[length..];
        }
        changed + rest
    };
    (change(inputs), change(attributes))
}

/// The model of a row; `None` where a changed row makes none.
fn model(operator: &str, inputs: &str, attributes: &str, outputs: usize) -> Option<Model> {
    let (operator, opset) = operator.split_once('@').unwrap_or((operator, "21"));
    let mut builder = Builder::new("row", 1)
        .opset(opset.parse().ok()?)
        .domain("com.microsoft", 1)
        .domain("com.microsoft.nchwc", 1)
        .domain("elsewhere", 1);
    let mut names = Vec::new();
    for (index, text) in inputs.split_whitespace().enumerate() {
        if text == "-" {
            names.push(String::new());
            continue;
        }
        let name = format!("input{index}");
        let (dtype, dims, data) = value(text)?;
        names.push(match data {
            None => builder.input(&name, dtype, &dims.into_iter().map(fixed).collect::<Vec<_>>()),
            Some(data) => builder.initializer(&name, &tensor(dtype, &dims, &data)?),
        });
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let attributes =
        attributes.split_whitespace().map(read_attribute).collect::<Option<Vec<_>>>()?;
    builder.node_with_outputs(operator, &names, &attributes, outputs);
    builder.finish().ok()
}

fn value(text: &str) -> Option<(DataType, Vec<usize>, Option<Vec<f64>>)> {
    let (shape, data) = match text.split_once('=') {
        Some((shape, data)) => (shape, Some(data)),
        None => (text, None),
    };
    let (dtype, dims) = shape.strip_suffix(']')?.split_once('[')?;
    let data = data.map(list).map_or(Some(None), |data| data.map(Some))?;
    Some((DataType::from_name(dtype)?, list(dims)?, data))
}

fn list<T: std::str::FromStr>(text: &str) -> Option<Vec<T>> {
    text.split(',').filter(|item| !item.is_empty()).map(|item| item.parse().ok()).collect()
}

fn tensor(dtype: DataType, dims: &[usize], data: &[f64]) -> Option<Tensor> {
    fn of<T: holdfast_graph::Element>(
        dims: &[usize],
        data: &[f64],
        to: fn(f64) -> T,
    ) -> Option<Tensor> {
        Tensor::from_slice(dims, &data.iter().copied().map(to).collect::<Vec<_>>()).ok()
    }
    match dtype {
        DataType::I64 => of(dims, data, |value| value as i64),
        DataType::I32 => of(dims, data, |value| value as i32),
        DataType::U8 => of(dims, data, |value| value as u8),
        DataType::Bool => of(dims, data, |value| value != 0.0),
        _ => of(dims, data, |value| value as f32),
    }
}

fn read_attribute(text: &str) -> Option<AttributeProto> {
    let (name, value) = text.split_once('=')?;
    if let Some(items) = value.strip_prefix('[') {
        return Some(attribute::ints(name, &list(items.trim_end_matches(']'))?));
    }
    Some(match value.parse() {
        Ok(value) => attribute::int(name, value),
        Err(_) => attribute::text(name, value),
    })
}

fn show(fact: &Fact) -> String {
    let dims: Vec<String> = fact.dims.iter().map(usize::to_string).collect();
    let shape = format!("{}[{}]", fact.dtype, dims.join(","));
    let Some(data) = &fact.data else { return shape };
    let number = |number: &Number| match number {
        Number::Int(value) => value.to_string(),
        Number::Float(value) => value.to_string(),
    };
    format!("{shape}={}", data.iter().map(number).collect::<Vec<_>>().join(","))
}
