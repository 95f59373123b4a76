//! NumPy's `.npy` files: one tensor each, in and out.

use std::io::Write;

use bytes::Bytes;
use half::bf16;
use holdfast_graph::{DataType, Tensor};
use npyz::{DType, Endianness, NpyHeader, Order, TypeChar, WriteOptions, WriterBuilder};

use super::{InputError, Source};

/// Headers are a line of text; NumPy itself refuses longer ones.
const MAX_HEADER_BYTES: usize = 10_000;

/// Reads a file's tensor. Little-endian files in C order, which is what NumPy writes, are not
/// copied; big-endian and Fortran-ordered ones are rearranged.
pub fn read(source: &Source) -> Result<Tensor, InputError> {
    parse(&source.bytes).map_err(|problem| InputError::content(&source.name, problem))
}

/// Writes a tensor. The format has no bf16, which becomes f32 without loss; it has no 8-bit
/// floats, sub-byte numbers or (without pickled code) strings, which are refused.
pub fn write(tensor: &Tensor, mut writer: impl Write) -> Result<(), WriteError> {
    if tensor.dtype() == DataType::Bf16 {
        let wide: Vec<f32> = tensor
            .to_vec::<bf16>()
            .map(|values| values.into_iter().map(bf16::to_f32).collect())
            .map_err(WriteError::Tensor)?;
        return write(
            &Tensor::from_slice(tensor.dims(), &wide).map_err(WriteError::Tensor)?,
            writer,
        );
    }
    let code = NUMBERS.iter().find(|(dtype, _, _)| *dtype == tensor.dtype());
    let (_, kind, size) = code.ok_or(WriteError::NoSuchType(tensor.dtype()))?;
    let order = if *size == 1 { '|' } else { '<' };
    let code = format!("{order}{}{size}", kind.to_str());
    let code = code.parse().map_err(|_| WriteError::NoSuchType(tensor.dtype()))?;
    let shape: Vec<u64> = tensor.dims().iter().map(|&dim| dim as u64).collect();
    WriteOptions::new_header_only()
        .dtype(DType::Plain(code))
        .shape(&shape)
        .writer(&mut writer)
        .write_header_only()?;
    writer.write_all(tensor.bytes())?;
    Ok(writer.flush()?)
}

/// Why a tensor could not be written.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum WriteError {
    #[error(".npy files cannot hold {0}")]
    NoSuchType(DataType),
    #[error(transparent)]
    Tensor(holdfast_graph::TensorError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// The types that both sides have, with NumPy's letter and size in bytes.
const NUMBERS: [(DataType, TypeChar, u64); 14] = [
    (DataType::Bool, TypeChar::Bool, 1),
    (DataType::I8, TypeChar::Int, 1),
    (DataType::I16, TypeChar::Int, 2),
    (DataType::I32, TypeChar::Int, 4),
    (DataType::I64, TypeChar::Int, 8),
    (DataType::U8, TypeChar::Uint, 1),
    (DataType::U16, TypeChar::Uint, 2),
    (DataType::U32, TypeChar::Uint, 4),
    (DataType::U64, TypeChar::Uint, 8),
    (DataType::F16, TypeChar::Float, 2),
    (DataType::F32, TypeChar::Float, 4),
    (DataType::F64, TypeChar::Float, 8),
    (DataType::Complex64, TypeChar::Complex, 8),
    (DataType::Complex128, TypeChar::Complex, 16),
];

fn parse(bytes: &Bytes) -> Result<Tensor, String> {
    check_header(bytes)?;
    let mut rest: &[u8] = bytes;
    let header = NpyHeader::from_reader(&mut rest).map_err(|error| error.to_string())?;
    let DType::Plain(code) = header.dtype() else {
        return Err("the array has named fields; save one field at a time".into());
    };
    let number = NUMBERS
        .iter()
        .find(|(_, kind, size)| *kind == code.type_char() && *size == code.size_field());
    let (dtype, kind, size) =
        number.ok_or_else(|| format!("the array holds `{code}`, which models do not take"))?;

    let dims = header
        .shape()
        .iter()
        .map(|&dim| usize::try_from(dim).map_err(|_| format!("a dimension of {dim}")))
        .collect::<Result<Vec<_>, _>>()?;
    let data = bytes.slice_ref(rest);
    let tensor = Tensor::new(*dtype, dims.clone(), data).map_err(|error| error.to_string())?;
    let data = arranged(tensor.bytes(), header.order(), &dims, *size as usize);
    let width = if *kind == TypeChar::Complex { size / 2 } else { *size } as usize;
    let data = match code.endianness() {
        Endianness::Big => {
            data.chunks_exact(width).flat_map(|one| one.iter().rev()).copied().collect()
        }
        Endianness::Little | Endianness::Irrelevant => data,
    };
    Tensor::new(*dtype, dims, data).map_err(|error| error.to_string())
}

/// Refuses headers that the library would be taken in by: it allocates what a header claims to
/// be long, recurses as deep as brackets go, and multiplies dimensions without a check.
fn check_header(bytes: &[u8]) -> Result<(), String> {
    let not_npy = || "this is not a .npy file".to_owned();
    if !bytes.starts_with(b"\x93NUMPY") {
        return Err(not_npy());
    }
    let byte = |index: usize| bytes.get(index).copied().map(usize::from).ok_or_else(not_npy);
    let short = byte(8)? | byte(9)? << 8;
    let (start, len) = match byte(6)? {
        1 => (10, short),
        _ => (12, short | byte(10)? << 16 | byte(11)? << 24),
    };
    if len > MAX_HEADER_BYTES {
        return Err(format!("its header claims {len} bytes"));
    }
    let header = bytes.get(start..start + len).ok_or("the file ends inside its header")?;
    if header.iter().filter(|byte| b"([{".contains(byte)).count() > 64 {
        return Err("its header is nested too deeply".into());
    }
    let digits = header.split(|byte| !byte.is_ascii_digit());
    let numbers = digits.filter(|digits| digits.iter().any(|digit| *digit != b'0'));
    let product = numbers.into_iter().try_fold(1u64, |product, digits| {
        std::str::from_utf8(digits).ok()?.parse().ok().and_then(|n: u64| product.checked_mul(n))
    });
    product.filter(|&product| product <= i64::MAX as u64).ok_or("its dimensions are absurd")?;
    Ok(())
}

/// The elements row by row, from the file's order.
fn arranged(data: &Bytes, order: Order, dims: &[usize], size: usize) -> Bytes {
    if order == Order::C || dims.len() < 2 || data.is_empty() {
        return data.clone();
    }
    let mut strides = Vec::with_capacity(dims.len());
    let mut stride = size;
    for dim in dims {
        strides.push(stride);
        stride *= dim;
    }
    let mut out = Vec::with_capacity(data.len());
    let mut position = vec![0; dims.len()];
    while out.len() < data.len() {
        let offset: usize = position.iter().zip(&strides).map(|(at, stride)| at * stride).sum();
        out.extend_from_slice(&data[offset..offset + size]);
        for axis in (0..dims.len()).rev() {
            position[axis] += 1;
            if position[axis] < dims[axis] {
                break;
            }
            position[axis] = 0;
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    /// A file as NumPy writes it.
    fn file(header: &str, data: &[u8]) -> Source {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(data);
        Source::new("x.npy", bytes)
    }

    fn header(code: &str, fortran: &str, shape: &str) -> String {
        format!("{{'descr': '{code}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n")
    }

    fn message(source: &Source) -> String {
        read(source).unwrap_err().to_string()
    }

    #[test]
    fn every_type_survives_a_round_trip() {
        for (dtype, _, size) in NUMBERS {
            for dims in [vec![], vec![3], vec![2, 0], vec![2, 3, 2]] {
                let elements: usize = dims.iter().product();
                let bytes: Vec<u8> = (0..elements * size as usize).map(|n| (n % 2) as u8).collect();
                let tensor = Tensor::new(dtype, dims, bytes.into()).unwrap();
                let mut written = Vec::new();
                write(&tensor, &mut written).unwrap();
                assert_eq!(read(&Source::new("x", written)).unwrap(), tensor);
            }
        }
    }

    #[test]
    fn bfloat16_is_widened_and_types_that_numpy_lacks_are_refused() {
        let mut written = Vec::new();
        let tensor = Tensor::from_slice(&[1], &[bf16::from_f32(1.5)]).unwrap();
        write(&tensor, &mut written).unwrap();
        let wide = read(&Source::new("x", written)).unwrap();
        assert_eq!(wide, Tensor::from_slice(&[1], &[1.5f32]).unwrap());
        let tiny = Tensor::zeros(DataType::I4, &[3]).unwrap();
        let error = write(&tiny, Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), ".npy files cannot hold i4");
    }

    #[test]
    fn files_of_numpy_are_read_in_any_byte_and_axis_order() {
        let half: Vec<u8> =
            [1.0, -2.0].iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect();
        let found = read(&file(&header("<f2", "False", "(2,)"), &half)).unwrap();
        assert_eq!(found, Tensor::from_slice(&[2], &[1.0, -2.0].map(f16::from_f32)).unwrap());

        let flags = read(&file(&header("|b1", "False", "(1, 2)"), &[0, 1])).unwrap();
        assert_eq!(flags, Tensor::from_slice(&[1, 2], &[false, true]).unwrap());

        let big: Vec<u8> = [1i16, -2].iter().flat_map(|value| value.to_be_bytes()).collect();
        let found = read(&file(&header(">i2", "False", "(2,)"), &big)).unwrap();
        assert_eq!(found, Tensor::from_slice(&[2], &[1i16, -2]).unwrap());

        // numpy.asfortranarray([[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9], [10, 11]]])
        let columns = [0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11];
        let found = read(&file(&header("|u1", "True", "(2, 3, 2)"), &columns)).unwrap();
        let rows: Vec<u8> = (0..12).collect();
        assert_eq!(found, Tensor::from_slice(&[2, 3, 2], &rows).unwrap());
    }

    #[test]
    fn broken_and_hostile_files_are_errors() {
        for (source, expected) in [
            (Source::new("x.npy", ""), "this is not a .npy file"),
            (Source::new("x.npy", "PK zip"), "this is not a .npy file"),
            (Source::new("x.npy", &b"\x93NUMPY\x01\x00\x76"[..]), "this is not a .npy file"),
            (Source::new("x.npy", &b"\x93NUMPY\x01\x00\x76\x00{"[..]), "ends inside its header"),
            (Source::new("x.npy", &b"\x93NUMPY\x02\x00\xff\xff\xff\xff{"[..]), "header claims"),
            (
                file(&header("<f4", "False", "(2,)"), &[0; 7]),
                "f32[2] takes 8 bytes, but 7 are there",
            ),
            (
                file(&header("<U3", "False", "(1,)"), &[0; 12]),
                "holds `<U3`, which models do not take",
            ),
            (file(&header("|O", "False", "(1,)"), &[0; 12]), "models do not take"),
            (file(&header("<f4", "False", "(-1,)"), &[]), "dimension cannot be negative"),
            (
                file(&header("<f4", "False", "(9223372036854775807, 9, 0)"), &[]),
                "its dimensions are absurd",
            ),
            (file(&"(".repeat(9_000), &[]), "nested too deeply"),
            (file("nonsense", &[]), "x.npy: "),
        ] {
            let message = message(&source);
            assert!(message.contains(expected), "{message}");
        }
    }
}
