//! The rows.

use super::check;

#[test]
fn element_wise_operators_broadcast_and_compute_small_values() {
    check(&[
        ("Add", "f32[2,3] f32[3]", "", "f32[2,3]"),
        ("Mul", "f32[2,1,4] f32[3,1]", "", "f32[2,3,4]"),
        ("Add", "i64[2]=1,2 i64[1]=5", "", "i64[2]=6,7"),
        ("Sub", "i64[]=5 i64[]=7", "", "i64[]=-2"),
        ("Div", "i64[2]=7,-7 i64[]=2", "", "i64[2]=3,-3"),
        ("Div", "f32[]=7 f32[]=2", "", "f32[]=3.5"),
        ("Mul", "f32[]=3 f32[]=0.5", "", "f32[]=1.5"),
        ("Pow", "i64[]=2 i64[]=10", "", "i64[]=1024"),
        ("Mod", "i64[]=7 i64[]=4", "", "i64[]=3"),
        ("Max", "i64[2]=1,9 i64[]=4 i64[]=2", "", "i64[2]=4,9"),
        ("Min", "f32[2] f32[3,1]", "", "f32[3,2]"),
        ("Floor", "f32[2]=1.5,-1.5", "", "f32[2]=1,-2"),
        ("Ceil", "f32[1]=1.2", "", "f32[1]=2"),
        ("Round", "f32[2]=2.5,3.5", "", "f32[2]=2,4"),
        ("Sqrt", "f32[]=64", "", "f32[]=8"),
        ("Neg", "i64[1]=3", "", "i64[1]=-3"),
        ("Equal", "i64[2]=1,2 i64[2]=1,3", "", "bool[2]=1,0"),
        ("Greater", "f32[2] f32[2]", "", "bool[2]"),
        ("LessOrEqual", "i64[]=2 i64[]=2", "", "bool[]=1"),
        ("And", "bool[]=1 bool[]=0", "", "bool[]=0"),
        ("Not", "bool[2]=1,0", "", "bool[2]=0,1"),
        ("Where", "bool[2]=1,0 i64[2]=1,2 i64[]=9", "", "i64[2]=1,9"),
        ("Where", "bool[4,1] f32[3] f32[]", "", "f32[4,3]"),
        ("Cast", "f32[2]=2.9,-2.9", "to=7", "i64[2]=2,-2"),
        ("Cast", "i64[3]", "to=10", "f16[3]"),
        ("CastLike", "f32[3] i32[1]", "", "i32[3]"),
        ("IsNaN", "f32[3]", "", "bool[3]"),
        ("PRelu", "f32[1,3,4] f32[3,1]", "", "f32[1,3,4]"),
        ("Clip@11", "f32[2,2] f32[]=0 f32[]=6", "", "f32[2,2]"),
        ("com.microsoft::BiasGelu", "f32[2,3,8] f32[8]", "", "f32[2,3,8]"),
        ("com.microsoft::QuickGelu", "f16[2,3]", "", "f16[2,3]"),
        (
            "com.microsoft::QLinearAdd",
            "u8[2,3] f32[] u8[] u8[3] f32[] u8[] f32[] u8[]",
            "",
            "u8[2,3]",
        ),
    ]);
}

#[test]
fn element_wise_operators_refuse_shapes_that_do_not_broadcast() {
    check(&[
        ("Add", "f32[2,3] f32[2]", "", "?[2, 3] and [2] do not broadcast"),
        ("Where", "bool[2] f32[3] f32[]", "", "?do not broadcast"),
        ("Add", "f32[2] -", "", "?input 1 is missing"),
        ("Add", "i64[]=9223372036854774784 i64[]=9223372036854774784", "", "i64[]"),
        ("Div", "i64[]=1 i64[]=0", "", "i64[]"),
        ("Mul", "f32[1099511627776,1] f32[1,1099511627776]", "", "?more elements than any memory"),
    ]);
}

#[test]
fn arranging_operators_keep_every_element() {
    check(&[
        ("Reshape", "f32[2,3,4] i64[2]=0,-1", "", "f32[2,12]"),
        ("Reshape", "f32[0,4] i64[2]=4,0", "allowzero=1", "f32[4,0]"),
        ("Reshape", "i64[4]=1,2,3,4 i64[2]=2,2", "", "i64[2,2]=1,2,3,4"),
        ("Flatten", "f32[2,3,4]", "", "f32[2,12]"),
        ("Flatten", "f32[2,3,4]", "axis=3", "f32[24,1]"),
        ("Flatten", "f32[2,3,4]", "axis=-1", "f32[6,4]"),
        ("Squeeze@11", "f32[1,3,1]", "axes=[0]", "f32[3,1]"),
        ("Squeeze", "f32[1,3,1] i64[1]=-1", "", "f32[1,3]"),
        ("Squeeze", "f32[1,3,1]", "", "f32[3]"),
        ("Unsqueeze@11", "f32[3]", "axes=[0,2]", "f32[1,3,1]"),
        ("Unsqueeze", "i64[]=7 i64[1]=0", "", "i64[1]=7"),
        ("Transpose", "f32[2,3,4]", "perm=[2,0,1]", "f32[4,2,3]"),
        ("Transpose", "i64[2,3]=1,2,3,4,5,6", "", "i64[3,2]=1,4,2,5,3,6"),
        ("Concat", "i64[1]=2 i64[2]=3,4", "axis=0", "i64[3]=2,3,4"),
        ("Concat", "i64[2,1]=1,3 i64[2,1]=2,4", "axis=-1", "i64[2,2]=1,2,3,4"),
        ("Split@11", "f32[6,2]", "split=[2,4]", "f32[2,2] f32[4,2]"),
        ("Split", "i64[3]=1,2,3 i64[2]=1,2", "", "i64[1]=1 i64[2]=2,3"),
        ("Split@18", "f32[7]", "num_outputs=3", "f32[3] f32[3] f32[1]"),
        ("Expand", "i64[1]=5 i64[2]=2,2", "", "i64[2,2]=5,5,5,5"),
        ("Expand", "f32[3,1] i64[1]=4", "", "f32[3,4]"),
        ("Tile", "f32[2,3] i64[2]=2,3", "", "f32[4,9]"),
        ("Pad", "f32[2,3] i64[4]=0,1,0,-2", "", "f32[2,2]"),
        ("Pad@18", "f32[2,3] i64[2]=1,1 - i64[1]=-1", "", "f32[2,5]"),
        ("DepthToSpace", "f32[1,8,2,3]", "blocksize=2", "f32[1,2,4,6]"),
        ("SpaceToDepth", "f32[1,2,4,6]", "blocksize=2", "f32[1,8,2,3]"),
        ("Identity", "i64[1]=3", "", "i64[1]=3"),
        ("Trilu", "f32[4,4]", "", "f32[4,4]"),
    ]);
}

#[test]
fn arranging_operators_refuse_what_does_not_fit() {
    check(&[
        ("Reshape", "f32[2,3] i64[1]=5", "", "?[2, 3] cannot become [5]"),
        ("Reshape", "f32[2,3] i64[2]=-1,4", "", "?cannot become"),
        ("Reshape", "f32[2,3] i64[2]=-1,-1", "", "?more than one"),
        ("Reshape", "f32[2,3] i64[1]=-2", "", "?-2 is not a size"),
        ("Reshape", "f32[2,3] i64[2]", "", "?depends on the values of `input1`"),
        ("Squeeze", "f32[2,3] i64[1]=0", "", "?is not 1"),
        ("Unsqueeze", "f32[3] i64[1]=5", "", "?axis 5 does not exist in rank 2"),
        ("Unsqueeze", "f32[3] i64[2]=0,0", "", "?named twice"),
        ("Transpose", "f32[2,3]", "perm=[0,0]", "?named twice"),
        ("Transpose", "f32[2,3]", "perm=[0]", "?does not fit rank 2"),
        ("Concat", "f32[2,3] f32[3,3]", "axis=1", "?does not join"),
        ("Split", "f32[6] i64[2]=2,3", "", "?6 does not split into [2, 3]"),
        ("Expand", "f32[3] i64[1]", "", "?depends on the values of `input1`"),
        ("Expand", "f32[2] i64[1]=-1", "", "?not a size"),
        ("Tile", "f32[2] i64[1]=9223372036854774784", "", "?not a size"),
        ("Pad", "f32[2] i64[2]=-2,-1", "", "?-1 is not a size"),
        ("DepthToSpace", "f32[1,7,2,3]", "blocksize=2", "?do not make blocks"),
    ]);
}

#[test]
fn choosing_operators_give_what_they_choose() {
    check(&[
        ("Slice", "i64[4]=1,2,3,4 i64[1]=1 i64[1]=3", "", "i64[2]=2,3"),
        ("Slice", "i64[4]=1,2,3,4 i64[1]=-1 i64[1]=-9 i64[1]=0 i64[1]=-2", "", "i64[2]=4,2"),
        ("Slice", "f32[5,6] i64[1]=2 i64[1]=9223372036854774784 i64[1]=1", "", "f32[5,4]"),
        ("Slice", "f32[5] i64[1]=4 i64[1]=2", "", "f32[0]"),
        ("Gather", "i64[3]=5,6,7 i64[]=-1", "", "i64[]=7"),
        ("Gather", "i64[3]=5,6,7 i64[2]=0,2", "", "i64[2]=5,7"),
        ("Gather", "f32[30,8] i64[2,5]", "", "f32[2,5,8]"),
        ("Gather", "f32[2,5,8] i64[]=0", "axis=1", "f32[2,8]"),
        ("GatherElements", "f32[2,5] i64[2,3]", "axis=1", "f32[2,3]"),
        ("GatherND", "f32[2,3,4] i64[2,1]", "batch_dims=1", "f32[2,4]"),
        ("ScatterND", "f32[4,5] i64[2,1] f32[2,5]", "", "f32[4,5]"),
        ("Compress", "f32[3,2] bool[3]=1,0,1", "axis=0", "f32[2,2]"),
        ("NonZero", "i64[2,2]=1,0,0,3", "", "i64[2,2]"),
        ("Shape", "f32[2,3,4]", "", "i64[3]=2,3,4"),
        ("Shape@15", "f32[2,3,4]", "start=1 end=-1", "i64[1]=3"),
        ("Size", "f32[2,3]", "", "i64[]=6"),
    ]);
}

#[test]
fn choosing_by_values_that_only_a_run_can_tell_is_not_known() {
    check(&[
        ("Slice", "f32[5] i64[1] i64[1]=3", "", "?values of `input1`"),
        ("Slice", "f32[5] i64[1]=0 i64[1]=3 i64[1]=0 i64[1]=0", "", "?a step is 0"),
        ("Slice", "f32[5] i64[1]=0 i64[2]=3,4", "", "?differ in length"),
        ("Gather", "f32[] i64[1]", "", "?axis 0 does not exist in rank 0"),
        ("GatherND", "f32[2] i64[2,3]", "", "?cannot choose"),
        ("NonZero", "f32[3]", "", "?values of `input0`"),
        ("Compress", "f32[3] bool[3]", "", "?values of `input1`"),
        ("Unique", "f32[3]", "", "?no rule for operator `ai.onnx::Unique`"),
        ("elsewhere::Add", "f32[3] f32[3]", "", "?no rule for operator `elsewhere::Add`"),
    ]);
}

#[test]
fn values_are_made_from_shapes_and_constants() {
    check(&[
        ("ConstantOfShape", "i64[2]=2,1", "", "f32[2,1]=0,0"),
        ("ConstantOfShape", "i64[2]=300,400", "", "f32[300,400]"),
        ("ConstantOfShape", "i64[2]", "", "?values of `input0`"),
        ("ConstantOfShape", "i64[1]=-1", "", "?not a size"),
        ("Constant", "", "value_ints=[1,2]", "i64[2]=1,2"),
        ("Constant", "", "value_int=3", "i64[]=3"),
        ("Constant", "", "value_string=x", "string[]"),
        ("Range", "i64[]=2 i64[]=9 i64[]=3", "", "i64[3]=2,5,8"),
        ("Range", "f32[]=1 f32[]=2 f32[]=0.5", "", "f32[2]=1,1.5"),
        ("Range", "i64[]=5 i64[]=1 i64[]=1", "", "i64[0]="),
        ("Range", "i64[]=0 i64[]=5 i64[]=0", "", "?does not end"),
        ("Range", "i64[]=0 i64[] i64[]=1", "", "?values of `input1`"),
        ("OneHot", "i64[2,3] i64[]=5 f32[2]", "", "f32[2,3,5]"),
        ("OneHot", "i64[2,3] i64[] f32[2]", "", "?values of `input1`"),
        ("EyeLike", "f32[3,3]", "dtype=7", "i64[3,3]"),
        ("RandomNormal", "", "shape=[2,3]", "f32[2,3]"),
    ]);
}

#[test]
fn reductions_drop_or_keep_their_axes() {
    check(&[
        ("ReduceMean@11", "f32[2,3,4]", "axes=[-1]", "f32[2,3,1]"),
        ("ReduceMean@18", "f32[2,3,4] i64[1]=1", "keepdims=0", "f32[2,4]"),
        ("ReduceSum", "f32[2,3]", "keepdims=0", "f32[]"),
        ("ReduceSum", "f32[2,3]", "noop_with_empty_axes=1", "f32[2,3]"),
        ("ReduceProd", "i64[3]=2,3,4", "keepdims=0", "i64[]=24"),
        ("ReduceMax", "i64[2,2]=1,7,3,4 i64[1]=1", "keepdims=0", "i64[2]=7,4"),
        ("ReduceMax", "f32[2] i64[1]", "", "?values of `input1`"),
        ("ReduceL2", "f32[2,3] i64[1]=5", "", "?axis 5 does not exist"),
        ("ArgMax", "f32[2,5]", "axis=1 keepdims=0", "i64[2]"),
        ("TopK", "f32[2,5] i64[1]=3", "", "f32[2,3] i64[2,3]"),
        ("TopK", "f32[2,5] i64[1]=6", "", "?the top 6 of 5"),
        ("CumSum", "f32[2,5] i64[]=1", "", "f32[2,5]"),
        ("Softmax@11", "f32[2,5]", "", "f32[2,5]"),
    ]);
}

#[test]
fn products_follow_their_inner_dimension() {
    check(&[
        ("MatMul", "f32[2,3,4] f32[4,5]", "", "f32[2,3,5]"),
        ("MatMul", "f32[2,1,3,4] f32[7,4,5]", "", "f32[2,7,3,5]"),
        ("MatMul", "f32[4] f32[4]", "", "f32[]"),
        ("MatMul", "f32[4] f32[2,4,5]", "", "f32[2,5]"),
        ("MatMul", "f32[3,4] f32[5,6]", "", "?[3, 4] and [5, 6] do not multiply"),
        ("MatMul", "f32[] f32[5,6]", "", "?do not multiply"),
        ("Gemm", "f32[4,3] f32[5,4] f32[5]", "transA=1 transB=1", "f32[3,5]"),
        ("Gemm", "f32[3,4] f32[3,4]", "", "?do not multiply"),
        ("MatMulInteger", "u8[3,4] i8[4,5]", "", "i32[3,5]"),
        ("QLinearMatMul", "u8[3,4] f32[] u8[] u8[4,5] f32[] u8[] f32[] u8[]", "", "u8[3,5]"),
        ("Einsum", "f32[2,3,4] f32[2,4,5]", "equation=bij,bjk->bik", "f32[2,3,5]"),
        ("Einsum", "f32[2,3,4] f32[4,5]", "equation=...ij,jk", "f32[2,3,5]"),
        ("Einsum", "f32[3,3]", "equation=ii->i", "f32[3]"),
        ("Einsum", "f32[3,4]", "equation=ij->k", "?no input has"),
        ("Einsum", "f32[3,4] f32[5,6]", "equation=ij,jk->ik", "?does not describe"),
        ("com.microsoft::FusedMatMul", "f32[2,3,4] f32[2,5,4]", "transB=1", "f32[2,3,5]"),
        ("com.microsoft::FusedMatMul", "f32[3,2,4] f32[2,4,5]", "transBatchA=1", "f32[2,3,5]"),
        ("com.microsoft::DynamicQuantizeMatMul", "f32[2,4] u8[4,5] f32[]", "", "f32[2,5]"),
        ("com.microsoft::MatMulIntegerToFloat", "u8[2,4] u8[4,5] f32[] f32[]", "", "f32[2,5]"),
        (
            "com.microsoft::MatMulNBits",
            "f32[2,7,64] u8[16,2,16] f32[32]",
            "K=64 N=16",
            "f32[2,7,16]",
        ),
        (
            "com.microsoft::MatMulNBits",
            "f32[2,7,32] u8[16,2,16] f32[32]",
            "K=64 N=16",
            "?does not multiply",
        ),
    ]);
}

#[test]
fn convolutions_and_pools_slide_their_window() {
    check(&[
        ("Conv", "f32[1,3,8,8] f32[4,3,3,3]", "", "f32[1,4,6,6]"),
        ("Conv", "f32[1,3,8,9] f32[4,3,3,3]", "strides=[2,2] pads=[1,1,1,1]", "f32[1,4,4,5]"),
        ("Conv", "f32[1,4,9] f32[4,1,3]", "group=4 dilations=[2]", "f32[1,4,5]"),
        ("Conv", "f32[1,3,7,7] f32[4,3,3,3]", "auto_pad=SAME_UPPER strides=[2,2]", "f32[1,4,4,4]"),
        ("Conv", "f32[1,3,8,8] f32[4,2,3,3]", "", "?does not fit 3 channels"),
        ("Conv", "f32[1,3,2,2] f32[4,3,3,3]", "", "?kernel is larger"),
        ("Conv", "f32[1,3,8,8] f32[4,3,3,3]", "strides=[0,1]", "?must be positive"),
        ("Conv", "f32[1,3,8,8] f32[4,3,3,3]", "strides=[1]", "?does not fit rank 2"),
        ("ConvInteger", "u8[1,3,8,8] i8[4,3,3,3]", "", "i32[1,4,6,6]"),
        ("ConvTranspose", "f32[1,3,4,4] f32[3,5,2,2]", "strides=[2,2]", "f32[1,5,8,8]"),
        (
            "ConvTranspose",
            "f32[1,4,4] f32[4,2,3]",
            "group=2 strides=[2] pads=[1,1] output_padding=[1]",
            "f32[1,4,8]",
        ),
        ("ConvTranspose", "f32[1,4,4] f32[3,2,3]", "", "?does not fit 4 channels"),
        (
            "MaxPool",
            "f32[1,3,5,5]",
            "kernel_shape=[2,2] strides=[2,2]",
            "f32[1,3,2,2] i64[1,3,2,2]",
        ),
        ("MaxPool", "f32[1,3,5,5]", "kernel_shape=[2,2] strides=[2,2] ceil_mode=1", "f32[1,3,3,3]"),
        (
            "AveragePool",
            "f32[1,3,5]",
            "kernel_shape=[2] strides=[3] pads=[1,1] ceil_mode=1",
            "f32[1,3,2]",
        ),
        ("AveragePool", "f32[1,3,5]", "kernel_shape=[2,2]", "?does not fit 1 spatial"),
        ("GlobalAveragePool", "f32[1,3,5,6]", "", "f32[1,3,1,1]"),
        (
            "com.microsoft::FusedConv",
            "f32[1,3,8,8] f32[4,3,1,1] f32[4]",
            "activation=Relu",
            "f32[1,4,8,8]",
        ),
        ("com.microsoft.nchwc::ReorderInput", "f32[1,32,4,4]", "channels_last=0", "f32[1,32,4,4]"),
        (
            "com.microsoft.nchwc::ReorderInput",
            "f32[1,24,4,4]",
            "channels_last=0",
            "?only a run can tell",
        ),
        (
            "com.microsoft.nchwc::ReorderOutput",
            "f32[1,16,4,5]",
            "channels=10 channels_last=1",
            "f32[1,4,5,10]",
        ),
        ("com.microsoft.nchwc::ReorderOutput", "f32[1,16,4,5]", "channels=17", "?do not come out"),
        ("com.microsoft.nchwc::Conv", "f32[1,3,8,8] f32[16,3,3,3]", "", "f32[1,16,6,6]"),
        ("Resize", "f32[1,2,5,7] - f32[4]=1,1,2,1.5", "", "f32[1,2,10,10]"),
        ("Resize", "f32[1,2,5,7] - - i64[4]=1,2,3,4", "", "f32[1,2,3,4]"),
        (
            "Resize",
            "f32[1,2,5,7] - - i64[2]=10,9",
            "axes=[2,3] keep_aspect_ratio_policy=not_larger",
            "f32[1,2,6,9]",
        ),
        ("Resize", "f32[1,2,5,7] - f32[4]", "", "?values of `input2`"),
        ("Resize", "f32[1,2,5,7]", "", "?neither sizes nor scales"),
        ("GridSample", "f32[2,3,8,8] f32[2,4,5,2]", "", "f32[2,3,4,5]"),
    ]);
}

#[test]
fn normalisations_keep_the_shape() {
    check(&[
        ("LayerNormalization", "f16[2,3,4] f16[4]", "", "f16[2,3,4] f32[2,3,1] f32[2,3,1]"),
        ("SimplifiedLayerNormalization", "f32[2,4] f32[4]", "axis=-1", "f32[2,4]"),
        ("BatchNormalization", "f32[1,3,4] f32[3] f32[3] f32[3] f32[3]", "", "f32[1,3,4]"),
        ("InstanceNormalization", "f32[1,3,4] f32[3] f32[3]", "", "f32[1,3,4]"),
        (
            "com.microsoft::SkipLayerNormalization",
            "f32[2,3,4] f32[2,3,4] f32[4]",
            "",
            "f32[2,3,4] f32[2,3,1] f32[2,3,1] f32[2,3,4]",
        ),
        (
            "com.microsoft::EmbedLayerNormalization",
            "i32[2,5] - f32[30,8] f32[16,8] - f32[8] f32[8]",
            "",
            "f32[2,5,8] i32[2]",
        ),
        ("com.microsoft::EmbedLayerNormalization", "i32[2,5,1] - f32[30,8]", "", "?has rank 3"),
        ("LayerNormalization", "f32[] f32[]", "", "?axis -1 does not exist"),
        ("QuantizeLinear", "f32[2,3] f32[]", "", "u8[2,3]"),
        ("QuantizeLinear", "f32[2,3] f32[] i8[]", "", "i8[2,3]"),
        ("DequantizeLinear", "i8[2,3] f16[]", "", "f16[2,3]"),
        ("DynamicQuantizeLinear", "f32[2,3]", "", "u8[2,3] f32[] u8[]"),
    ]);
}

#[test]
fn recurrent_and_attention_operators_follow_their_sizes() {
    check(&[
        (
            "LSTM",
            "f32[7,2,3] f32[2,32,3] f32[2,32,8]",
            "hidden_size=8 direction=bidirectional",
            "f32[7,2,2,8] f32[2,2,8] f32[2,2,8]",
        ),
        ("GRU", "f32[2,7,3] f32[1,24,3] f32[1,24,8]", "layout=1", "f32[2,7,1,8] f32[2,1,8]"),
        ("LSTM", "f32[7,2] f32[2,32,3] f32[2,32,8]", "", "?has rank 2"),
        ("LSTM", "f32[7,2,3] f32[2,32,3] f32[2,32,8]", "direction=sideways", "?does not exist"),
        (
            "Attention@23",
            "f32[2,5,8] f32[2,7,4] f32[2,7,4] - f32[2,1,3,4] f32[2,1,3,4]",
            "q_num_heads=2 kv_num_heads=1",
            "f32[2,5,8] f32[2,1,10,4] f32[2,1,10,4]",
        ),
        ("RotaryEmbedding@23", "f32[2,4,5,8] f32[9,4] f32[9,4]", "", "f32[2,4,5,8]"),
        (
            "com.microsoft::Attention",
            "f32[2,5,8] f32[8,24] f32[24]",
            "num_heads=2",
            "f32[2,5,8] f32[2,2,2,5,4]",
        ),
        (
            "com.microsoft::Attention",
            "f32[2,5,8] f32[8,24] f32[24]",
            "num_heads=3",
            "?do not split into 3 heads",
        ),
        ("com.microsoft::Attention", "f32[2,5,8] f32[8,24] f32[24]", "", "?`num_heads` is missing"),
        (
            "com.microsoft::MultiHeadAttention",
            "f32[2,5,8] f32[2,7,8] f32[2,7,16]",
            "num_heads=2",
            "f32[2,5,16]",
        ),
        (
            "com.microsoft::GroupQueryAttention",
            "f32[2,1,32] f32[2,1,16] f32[2,1,16] f32[2,2,6,8] f32[2,2,6,8] i32[2] i32[]=7",
            "num_heads=4 kv_num_heads=2",
            "f32[2,1,32] f32[2,2,7,8] f32[2,2,7,8]",
        ),
        (
            "com.microsoft::GroupQueryAttention",
            "f32[2,1,32] f32[2,1,16] f32[2,1,16] f32[2,2,6,8] f32[2,2,6,8] i32[2] i32[]",
            "num_heads=4 kv_num_heads=2",
            "?values of `input6`",
        ),
        ("com.microsoft::RotaryEmbedding", "f32[2,5,8] i64[1] f32[9,2] f32[9,2]", "", "f32[2,5,8]"),
    ]);
}

#[test]
fn signal_operators_follow_their_frames() {
    check(&[
        ("DFT@17", "f32[2,16,1]", "onesided=1 axis=1", "f32[2,9,2]"),
        ("DFT@20", "f32[2,16,1] i64[]=20", "", "f32[2,20,2]"),
        ("DFT@20", "f32[2,16,1] - i64[]=2", "", "?real and imaginary"),
        ("STFT", "f32[1,100,1] i64[]=10 f32[20]", "", "f32[1,9,11,2]"),
        ("STFT", "f32[1,100,1] i64[] f32[20]", "", "?values of `input1`"),
        ("STFT", "f32[1,10,1] i64[]=10 f32[20]", "", "?frames of 20"),
        ("HannWindow", "i64[]=20", "", "f32[20]"),
        ("MelWeightMatrix", "i64[]=8 i64[]=16 i64[]=8000 f32[] f32[]", "", "f32[9,8]"),
    ]);
}
