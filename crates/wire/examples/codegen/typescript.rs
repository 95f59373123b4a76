//! The messages as TypeScript types.

use holdfast_wire::*;
use ts_rs::{Config, TS};

/// One file with all of them.
pub(crate) fn types() -> String {
    let config = Config::new().with_large_int("number");
    let mut text = format!(
        "/*\n * The messages between Holdfast and a browser. Generated from crates/wire by\n \
         * `cargo xtask codegen`: do not edit.\n */\n\n\
         export const PROTOCOL_VERSION = {PROTOCOL_VERSION};\n\
         export const SUBPROTOCOL = {SUBPROTOCOL:?};\n\
         export const TOKEN_SUBPROTOCOL_PREFIX = {TOKEN_SUBPROTOCOL_PREFIX:?};\n\
         export const FRAME_BODY_LIMIT = {FRAME_BODY_LIMIT};\n\
         export const HEADER_LIMIT = {HEADER_LIMIT};\n\
         export const FRAME_LIMIT = {FRAME_LIMIT};\n\
         export const BODY_LIMIT = {BODY_LIMIT};\n\
         export const OPEN_MESSAGES_LIMIT = {OPEN_MESSAGES_LIMIT};\n"
    );
    macro_rules! add {
        ($($type:ty),* $(,)?) => {
            $(
                text.push('\n');
                text.push_str(&<$type as TS>::docs().unwrap_or_default());
                text.push_str("export ");
                text.push_str(&<$type as TS>::decl(&config));
                text.push('\n');
            )*
        };
    }
    add!(
        ToLane,
        Welcome,
        Step,
        TensorWindow,
        NamedInput,
        Input,
        NamedOutput,
        Output,
        FromLane,
        LoadPhase,
        WeightTraffic,
        OutputTensor,
        KeptTensor,
        StepTiming,
        LaneStats,
        ErrorKind,
        Hello,
        Backend,
        BrowserInfo,
        MachineInfo,
        WebGpuInfo,
        WebNnInfo,
        WasmInfo,
        StorageInfo,
        StorageKind,
        PowerInfo,
        Resume,
        BlobRef,
        LiftedWeight,
        TensorShape,
        TensorSlice,
    );
    text
}
