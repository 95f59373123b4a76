//! A classifier's head, and how it becomes a part of an ONNX model.
//!
//! The model's graph stays as it is; behind its token vectors come the mean over the tokens, a
//! dense layer, tanh and the classifier, written with operators that every exporter uses.

use anyhow::{Context, ensure};
use holdfast_graph::proto::{
    AttributeProto, DimensionValue, GraphProto, NodeProto, TypeValue, ValueInfoProto,
};
use holdfast_graph::{DataType, Dim, Model, Tensor, Value};
use holdfast_testkit::attribute::{int, ints};

/// What is trained. Matrices lie in memory as `[from, to]`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Head {
    pub(crate) dense: Vec<f32>,
    pub(crate) dense_bias: Vec<f32>,
    pub(crate) classifier: Vec<f32>,
    pub(crate) classifier_bias: Vec<f32>,
}

impl Head {
    /// A head of these sizes that says nothing.
    pub(crate) fn zeros(hidden: usize, classes: usize) -> Head {
        Head {
            dense: vec![0.0; hidden * hidden],
            dense_bias: vec![0.0; hidden],
            classifier: vec![0.0; hidden * classes],
            classifier_bias: vec![0.0; classes],
        }
    }

    pub(crate) fn parameters(&self) -> [&[f32]; 4] {
        [&self.dense, &self.dense_bias, &self.classifier, &self.classifier_bias]
    }

    pub(crate) fn parameters_mut(&mut self) -> [&mut [f32]; 4] {
        [&mut self.dense, &mut self.dense_bias, &mut self.classifier, &mut self.classifier_bias]
    }

    /// A model that ends in this head instead of its token vectors: `logits` and `probabilities`.
    /// Where the model takes an `attention_mask`, padding does not count.
    pub(crate) fn on(&self, model: Model) -> anyhow::Result<Model> {
        let (inputs, outputs) = (model.inputs(), model.outputs());
        let is_vectors = |output: &&Value| {
            output.dtype == Some(DataType::F32)
                && output.dims.as_ref().is_some_and(|dims| dims.len() == 3)
        };
        let vectors = outputs.iter().find(is_vectors).context(
            "the model gives no [batch, tokens, features] output that a head could stand on",
        )?;
        let (hidden, classes) = (self.dense_bias.len(), self.classifier_bias.len());
        let width = vectors.dims.as_ref().and_then(|dims| dims.last().cloned());
        ensure!(
            !matches!(width, Some(Dim::Fixed(width)) if width != hidden),
            "the head takes {hidden} features, the model's `{}` has {width:?}",
            vectors.name
        );
        let masked = inputs.iter().any(|input| input.name == MASK);
        let opset = model.opset("").context("the model does not say its operators' version")?;
        let mut proto = model.into_proto();
        let graph = proto.graph.as_mut().context("the model has no graph")?;
        let mut parts = Parts { graph, opset };
        let mean =
            if masked { parts.masked_mean(&vectors.name)? } else { parts.mean(&vectors.name)? };
        let dense = [
            parts.weight("dense.weight", &[hidden, hidden], &self.dense)?,
            parts.weight("dense.bias", &[hidden], &self.dense_bias)?,
        ];
        let inner = parts.node("Gemm", &[&mean, &dense[0], &dense[1]], &[], "dense");
        let inner = parts.node("Tanh", &[&inner], &[], "tanh");
        let classifier = [
            parts.weight("classifier.weight", &[hidden, classes], &self.classifier)?,
            parts.weight("classifier.bias", &[classes], &self.classifier_bias)?,
        ];
        let logits =
            parts.node("Gemm", &[&inner, &classifier[0], &classifier[1]], &[], "classifier");
        parts.node("Softmax", &[&logits], &[int("axis", 1)], "softmax");
        parts.outputs(&vectors.name, classes)?;
        Ok(Model::from_proto(proto)?)
    }
}

const MASK: &str = "attention_mask";

/// The graph that is being added to. Names start with `/head`, which no exporter uses.
struct Parts<'a> {
    graph: &'a mut GraphProto,
    opset: i64,
}

impl Parts<'_> {
    /// The mean over all tokens.
    fn mean(&mut self, vectors: &str) -> anyhow::Result<String> {
        self.reduce("ReduceMean", 18, vectors, 0, "mean")
    }

    /// The mean over the tokens that the mask marks.
    fn masked_mean(&mut self, vectors: &str) -> anyhow::Result<String> {
        let float = [int("to", DataType::F32.to_onnx().into())];
        let mask = self.node("Cast", &[MASK], &float, "mask");
        // Nought stands for the size that is there.
        let shape = self.tensor("column", Tensor::from_slice(&[3], &[0i64, -1, 1])?);
        let column = self.node("Reshape", &[&mask, &shape], &[], "mask_column");
        let kept = self.node("Mul", &[vectors, &column], &[], "kept");
        let sum = self.reduce("ReduceSum", 13, &kept, 0, "sum")?;
        let count = self.reduce("ReduceSum", 13, &mask, 1, "count")?;
        Ok(self.node("Div", &[&sum, &count], &[], "mean"))
    }

    /// Reduces the second axis, which newer versions of an operator take as an input.
    fn reduce(
        &mut self,
        operator: &str,
        as_input_since: i64,
        value: &str,
        keep: i64,
        name: &str,
    ) -> anyhow::Result<String> {
        let keep = int("keepdims", keep);
        if self.opset < as_input_since {
            return Ok(self.node(operator, &[value], &[ints("axes", &[1]), keep], name));
        }
        let axes = self.tensor(&format!("{name}_axes"), Tensor::from_slice(&[1], &[1i64])?);
        Ok(self.node(operator, &[value, &axes], &[keep], name))
    }

    fn weight(&mut self, name: &str, dims: &[usize], values: &[f32]) -> anyhow::Result<String> {
        Ok(self.tensor(name, Tensor::from_slice(dims, values)?))
    }

    fn tensor(&mut self, name: &str, tensor: Tensor) -> String {
        let name = format!("head.{name}");
        self.graph.initializer.push(tensor.to_proto(&name));
        name
    }

    fn node(
        &mut self,
        operator: &str,
        inputs: &[&str],
        with: &[AttributeProto],
        name: &str,
    ) -> String {
        let output = match name {
            "classifier" => "logits".to_owned(),
            "softmax" => "probabilities".to_owned(),
            _ => format!("/head/{name}_output"),
        };
        self.graph.node.push(NodeProto {
            input: inputs.iter().map(|&input| input.to_owned()).collect(),
            output: vec![output.clone()],
            name: format!("/head/{name}"),
            op_type: operator.to_owned(),
            attribute: with.to_vec(),
            ..NodeProto::default()
        });
        output
    }

    /// The classifier's outputs take the place of the model's own.
    fn outputs(&mut self, vectors: &str, classes: usize) -> anyhow::Result<()> {
        let old = std::mem::take(&mut self.graph.output);
        let of_tokens = old.into_iter().find(|output| output.name == vectors);
        let of_tokens = of_tokens.context("the model's output has gone")?;
        for name in ["logits", "probabilities"] {
            self.graph.output.push(by_class(&of_tokens, name, classes)?);
        }
        Ok(())
    }
}

/// From `[batch, tokens, features]` to `[batch, classes]`, with the name of the batch kept.
fn by_class(
    of_tokens: &ValueInfoProto,
    name: &str,
    classes: usize,
) -> anyhow::Result<ValueInfoProto> {
    let mut value = ValueInfoProto { name: name.to_owned(), ..of_tokens.clone() };
    let shape = match value.r#type.as_mut().and_then(|kind| kind.value.as_mut()) {
        Some(TypeValue::Tensor(tensor)) => tensor.shape.as_mut(),
        _ => None,
    };
    let shape = shape.context("the model's output has no shape")?;
    shape.dim.truncate(2);
    let last = shape.dim.last_mut().context("the model's output has no dimensions")?;
    last.value = Some(DimensionValue::Value(classes as i64));
    Ok(value)
}

#[cfg(test)]
mod tests {
    use holdfast_testkit::synth::{Options, synth};
    use holdfast_testkit::{Builder, fixed, named};

    use super::*;

    fn model(kind: &str) -> Model {
        synth(kind.parse().unwrap(), &Options::default()).unwrap().swap_remove(0).model
    }

    #[test]
    fn a_model_with_a_head_gives_classes() {
        for kind in ["bert", "vit", "whisper-encoder"] {
            let model = model(kind);
            let nodes = model.nodes().len();
            let made = Head::zeros(64, 3).on(model).unwrap();
            let outputs: Vec<String> =
                made.outputs().iter().map(|output| format!("{} {output}", output.name)).collect();
            assert_eq!(outputs, ["logits f32[batch, 3]", "probabilities f32[batch, 3]"], "{kind}");
            assert!(made.nodes().len() > nodes, "{kind}");
            assert_eq!(made.nodes().iter().any(|node| node.name == "/head/kept"), kind == "bert");
        }
    }

    #[test]
    fn a_head_of_another_width_is_refused() {
        let error = Head::zeros(32, 3).on(model("bert")).unwrap_err().to_string();
        assert!(error.contains("the head takes 32 features"), "{error}");
    }

    #[test]
    fn a_model_without_token_vectors_is_refused() {
        let mut builder = Builder::new("flat", 0);
        builder.input("x", DataType::F32, &[named("batch"), fixed(64)]);
        let y = builder.node("Relu", &["x"], &[]);
        builder.output("y", &y, DataType::F32, &[named("batch"), fixed(64)]);
        let error = Head::zeros(64, 3).on(builder.finish().unwrap()).unwrap_err().to_string();
        assert!(error.contains("no [batch, tokens, features] output"), "{error}");
    }
}
