//! Random models over one set of large weights: products in common without a common beginning.

use holdfast_graph::{DataType, Model};

use super::transform;
use crate::attribute::{float, int};
use crate::builder::{Builder, fixed};
use crate::numbers::Numbers;
use crate::weights::{Init, Weights};

/// Rows and columns of every value; a weight of this size has 1 KiB.
const WIDTH: usize = 16;
const INIT: Init = Init { mean: 0.0, deviation: 0.25 };

/// 2 to 4 models that have most of up to eight products in common: the same weights, but operands
/// of their own, and other operators in between. In some, a product is left out, comes in another
/// place or has another attribute, or its weight is used for something else too.
pub fn relatives(seed: u64) -> Vec<Model> {
    let mut numbers = Numbers::labelled(seed, "random relatives");
    let (members, products) = (2 + numbers.below(3), 1 + numbers.below(8));
    let member = |number: usize| {
        let mut order: Vec<usize> = (0..products).collect();
        if numbers.once_in(4) {
            let (one, other) = (numbers.below(products), numbers.below(products));
            order.swap(one, other);
        }
        let mut relative = Relative::new(seed, number);
        for product in order {
            relative.add_operators();
            relative.add_product(product);
        }
        relative.add_operators();
        let model = relative.finish();
        match numbers.below(3) {
            0 => transform::shuffle_nodes(&transform::rename(&model, seed).0, seed),
            1 => transform::reorder_initializers(&model, seed),
            _ => model,
        }
    };
    (0..members).map(member).collect()
}

struct Relative {
    number: usize,
    builder: Builder,
    numbers: Numbers,
    values: Vec<String>,
    /// Those that no node took.
    loose: Vec<String>,
}

impl Relative {
    fn new(seed: u64, number: usize) -> Relative {
        let mut builder = Builder::with_weights("relative", Weights::new(seed));
        let mut numbers = Numbers::labelled(seed, &format!("relative {number}"));
        let inputs = 0..1 + numbers.below(3);
        let dims = [fixed(WIDTH), fixed(WIDTH)];
        let values = inputs.map(|i| builder.input(&format!("input_{i}"), DataType::F32, &dims));
        let values = values.collect();
        Relative { number, builder, numbers, values, loose: Vec::new() }
    }

    fn add_operators(&mut self) {
        for _ in 0..self.numbers.below(4) {
            let one = self.operand();
            let unary = ["Relu", "Tanh", "Sigmoid", "Neg", "Softmax", "Transpose"];
            let binary = ["Add", "Sub", "Max"];
            let result = match self.numbers.pick(&unary) {
                Some(operator) if self.numbers.once_in(2) => {
                    self.builder.node(operator, &[&one], &[])
                }
                _ => {
                    let other = match self.numbers.once_in(4) {
                        true => self.builder.weight(
                            &format!("own_{}", self.number),
                            &[WIDTH, WIDTH],
                            INIT,
                        ),
                        false => self.operand(),
                    };
                    let operator = binary[self.numbers.below(binary.len())];
                    self.builder.node(operator, &[&one, &other], &[])
                }
            };
            self.add(result);
        }
    }

    fn add_product(&mut self, product: usize) {
        if self.numbers.once_in(12) {
            return;
        }
        let one = self.operand();
        let weight = self.builder.weight(&format!("product_{product}"), &[WIDTH, WIDTH], INIT);
        let result = if product.is_multiple_of(2) {
            self.builder.node("MatMul", &[&one, &weight], &[])
        } else {
            let bias = self.builder.weight(&format!("bias_{product}"), &[WIDTH, WIDTH], INIT);
            let alpha = if self.numbers.once_in(12) { 0.5 } else { 2.0 };
            let with = [float("alpha", alpha), int("transB", 1)];
            self.builder.node("Gemm", &[&one, &weight, &bias], &with)
        };
        if self.numbers.once_in(12) {
            let again = self.builder.node("Add", &[&result, &weight], &[]);
            self.add(again);
        }
        self.add(result);
    }

    /// A value that is there, most likely one of the last.
    fn operand(&mut self) -> String {
        let count = self.values.len();
        let back = if self.numbers.once_in(4) { count } else { count.min(3) };
        let name = self.values[count - 1 - self.numbers.below(back)].clone();
        // Some are taken and returned.
        if !self.numbers.once_in(6) {
            self.loose.retain(|loose| *loose != name);
        }
        name
    }

    fn add(&mut self, name: String) {
        self.loose.push(name.clone());
        self.values.push(name);
    }

    fn finish(mut self) -> Model {
        if self.loose.is_empty() {
            let one = self.operand();
            let result = self.builder.node("Neg", &[&one], &[]);
            self.add(result);
        }
        for (index, value) in self.loose.iter().enumerate() {
            let dims = [fixed(WIDTH), fixed(WIDTH)];
            self.builder.output(&format!("output_{index}"), value, DataType::F32, &dims);
        }
        self.builder.finish().expect("every name that a node takes was given before")
    }
}
