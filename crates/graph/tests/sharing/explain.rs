//! What a plan says to people.

use holdfast_graph::DataType::F32;
use holdfast_graph::share::{Member, Prices, Reason, share};
use holdfast_graph::{Fingerprints, Model, WeightTable};
use holdfast_testkit::attribute::float;
use holdfast_testkit::{Builder, Init, fixed};

use crate::check::{plan, plan_at, sizes};

struct Variant {
    weight: &'static str,
    alpha: f32,
    operator: &'static str,
}

const BASE: Variant = Variant { weight: "w", alpha: 0.1, operator: "Tanh" };

fn model(variant: &Variant) -> Model {
    let mut builder = Builder::new("explained", 1);
    builder.input("x", F32, &[fixed(3), fixed(3)]);
    let first = builder.node("Sigmoid", &["x"], &[]);
    let weight = builder.weight(variant.weight, &[3, 3], Init::bias());
    let product = builder.node("MatMul", &[&first, &weight], &[]);
    let leaky = builder.node("LeakyRelu", &[&product], &[float("alpha", variant.alpha)]);
    let y = builder.node(variant.operator, &[&leaky], &[]);
    builder.output("y", &y, F32, &[fixed(3), fixed(3)]);
    builder.finish().unwrap()
}

/// The node at which a variant differs from the base, and why.
fn check(variant: Variant, node: &str, reason: &str) {
    let plan = plan(&[&model(&variant), &model(&BASE)]);
    let first = plan.differences.iter().find(|difference| difference.model == 0).unwrap();
    assert_eq!((first.other, first.node.as_str()), (1, node));
    assert_eq!(first.reason.to_string(), reason);
}

#[test]
fn differences_name_the_first_node_and_the_reason() {
    let matmul = "node `/MatMul` (MatMul)";
    check(Variant { weight: "v", ..BASE }, matmul, "its weight `v` is not the other model's `w`");
    check(
        Variant { alpha: 0.2, ..BASE },
        "node `/LeakyRelu` (LeakyRelu)",
        "its attribute `alpha` is another than that of node `/LeakyRelu` (LeakyRelu)",
    );
    check(
        Variant { operator: "Abs", ..BASE },
        "node `/Abs` (Abs)",
        "the other model goes on with node `/Tanh` (Tanh)",
    );
    check(
        Variant { operator: "RandomNormalLike", ..BASE },
        "node `/RandomNormalLike` (RandomNormalLike)",
        "it depends on chance, so nothing is equal to it",
    );
}

#[test]
fn what_is_equal_has_no_differences() {
    assert_eq!(plan(&[&model(&BASE), &model(&BASE)]).differences, []);
}

#[test]
fn what_is_common_but_not_worth_sharing_is_said_to_be() {
    let plan =
        plan_at(&[&model(&BASE), &model(&Variant { operator: "Abs", ..BASE })], &Prices::default());
    assert!(!plan.shares());
    let reasons: Vec<&Reason> = plan.differences.iter().map(|d| &d.reason).collect();
    assert!(reasons.contains(&&Reason::NotWorth), "{reasons:?}");
}

#[test]
fn the_picture_has_every_segment_model_and_crossing_tensor() {
    let plan = plan(&[&model(&BASE), &model(&Variant { operator: "Abs", ..BASE })]);
    let dot = plan.to_dot();
    for part in [
        "digraph plan {",
        "segment0 [label=\"trunk\\n3 nodes",
        "segment0 -> segment1 [label=\"/LeakyRelu_output_0\\n36 B\"];",
        "segment1 -> model0 [label=\"y\"];",
        "model1 [label=\"model-1\", shape=ellipse];",
    ] {
        assert!(dot.contains(part), "{part} in\n{dot}");
    }
}

#[test]
fn the_drawn_picture_has_them_too() {
    let plan = plan(&[&model(&BASE), &model(&Variant { operator: "Abs", ..BASE })]);
    insta::assert_snapshot!(without_style(&plan.to_svg()), @r#"
    <svg xmlns="http://www.w3.org/2000/svg" class="plan" role="img" viewBox="0 0 882 218" width="882" height="218" font-family="system-ui, sans-serif" font-size="12">
    <title>2 models on 1 trunk</title>
    <rect class="paper" width="882" height="218"/>
    <g><title>/LeakyRelu_output_0: 36 B</title>
    <path class="arrow" d="M194 95 C260 95 260 58 326 58"/>
    <path class="tip" d="M326 58 L318 54 V62 Z"/>
    <text class="quiet" x="314" y="53" text-anchor="end" font-size="11">36 B</text></g>
    <g><title>/LeakyRelu_output_0: 36 B</title>
    <path class="arrow" d="M194 123 C260 123 260 160 326 160"/>
    <path class="tip" d="M326 160 L318 156 V164 Z"/>
    <text class="quiet" x="314" y="173" text-anchor="end" font-size="11">36 B</text></g>
    <g><title>y</title>
    <path class="arrow" d="M504 58 C570 58 570 58 636 58"/>
    <path class="tip" d="M636 58 L628 54 V62 Z"/>
    <text class="quiet" x="624" y="53" text-anchor="end" font-size="11">y</text></g>
    <g><title>y</title>
    <path class="arrow" d="M504 160 C570 160 570 160 636 160"/>
    <path class="tip" d="M636 160 L628 156 V164 Z"/>
    <text class="quiet" x="624" y="155" text-anchor="end" font-size="11">y</text></g>
    <rect class="trunk" x="16" y="67" width="178" height="84" rx="6"/>
    <text class="name" x="28" y="88">trunk 1 of 2 models</text>
    <text class="quiet" x="28" y="106">3 nodes</text>
    <text class="quiet" x="28" y="124">81 FLOP</text>
    <text class="quiet" x="28" y="142">36 B of weights</text>
    <rect class="head" x="326" y="16" width="178" height="84" rx="6"/>
    <text class="name" x="338" y="37">head</text>
    <text class="quiet" x="338" y="55">1 node</text>
    <text class="quiet" x="338" y="73">9 FLOP</text>
    <text class="quiet" x="338" y="91">0 B of weights</text>
    <rect class="head" x="326" y="118" width="178" height="84" rx="6"/>
    <text class="name" x="338" y="139">head</text>
    <text class="quiet" x="338" y="157">1 node</text>
    <text class="quiet" x="338" y="175">9 FLOP</text>
    <text class="quiet" x="338" y="193">0 B of weights</text>
    <g><title>model-0</title>
    <rect class="model" x="636" y="40" width="230" height="36" rx="18"/>
    <text x="751" y="62" text-anchor="middle">model-0</text></g>
    <g><title>model-1</title>
    <rect class="model" x="636" y="142" width="230" height="36" rx="18"/>
    <text x="751" y="164" text-anchor="middle">model-1</text></g>
    </svg>
    "#);
    assert_eq!(plan.to_svg(), plan.to_svg());
}

#[test]
fn models_with_nothing_in_common_are_drawn_whole() {
    let other = Variant { weight: "v", alpha: 0.2, operator: "Abs" };
    let svg = plan_at(&[&model(&BASE), &model(&other)], &Prices::default()).to_svg();
    assert!(svg.contains("<title>2 models without a trunk in common</title>"), "{svg}");
    assert!(svg.contains("whole model") && !svg.contains(">trunk 1"), "{svg}");
}

#[test]
fn names_cannot_break_the_picture() {
    let model = model(&BASE);
    let (prints, sizes) = (Fingerprints::new(&model, &WeightTable::new(&model)), sizes());
    let member = |name| Member { name, model: &model, prints: &prints, sizes: &sizes };
    let names = ["</svg><script>", "a & b"];
    let svg = share(&names.map(member), &Prices::free()).unwrap().to_svg();
    assert!(!svg.contains("<script>") && svg.contains("&lt;/svg&gt;&lt;script&gt;"), "{svg}");
    assert!(svg.contains("a &amp; b"), "{svg}");
}

/// Colours may change without anything being wrong.
fn without_style(svg: &str) -> String {
    svg.lines().filter(|line| !line.starts_with("<style>")).collect::<Vec<_>>().join("\n")
}
