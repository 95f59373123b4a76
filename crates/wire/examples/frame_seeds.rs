//! Writes the golden frames as seeds for the fuzzer, each with its length in front.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: seeds FOLDER")?;
    std::fs::create_dir_all(&folder)?;
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/wire/golden.json");
    let golden: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(golden)?)?;
    let cases = ["to_lane", "from_lane", "refused"].map(|group| golden[group].as_array());
    for (number, case) in cases.into_iter().flatten().flatten().enumerate() {
        let mut seed = Vec::new();
        for frame in case["frames"].as_array().into_iter().flatten() {
            let digits = frame.as_str().unwrap_or_default();
            let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16);
            let bytes = (0..digits.len()).step_by(2).map(byte).collect::<Result<Vec<_>, _>>()?;
            seed.extend_from_slice(&u16::try_from(bytes.len())?.to_le_bytes());
            seed.extend_from_slice(&bytes);
        }
        std::fs::write(Path::new(&folder).join(format!("golden-{number}")), seed)?;
    }
    Ok(())
}
