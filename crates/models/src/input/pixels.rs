//! Pictures as bytes per pixel: decoding with limits, resizing, cropping.

use std::io::Cursor;

use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader};

use super::recipe::Target;
use super::resize::{Filter, resize};
use super::{InputError, Source};

/// Decoded pictures, and those that are being resized, take no more than this. It is the most
/// that Pillow opens: 179 million pixels in colour.
const MAX_PICTURE_BYTES: u64 = 512 << 20;

/// 8 bits for each channel, row by row, channels next to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pixels {
    pub(super) height: u32,
    pub(super) width: u32,
    /// 3 (red, green, blue) or 1 (grey).
    pub(super) channels: usize,
    pub(super) bytes: Vec<u8>,
}

impl Pixels {
    /// Decodes a PNG or JPEG, upright, without its alpha channel.
    pub(super) fn decode(source: &Source, channels: usize) -> Result<Pixels, InputError> {
        let problem = |text: String| InputError::content(&source.name, text);
        let broken = |error: ImageError| problem(format!("the picture cannot be read: {error}"));
        let format = image::guess_format(&source.bytes).ok();
        let format = format.filter(|kind| matches!(kind, ImageFormat::Png | ImageFormat::Jpeg));
        let format = format.ok_or_else(|| problem("this is neither a PNG nor a JPEG".into()))?;
        if format == ImageFormat::Jpeg && !jpeg_is_whole(&source.bytes) {
            return Err(problem("the picture cannot be read: the file ends too early".into()));
        }

        let mut reader = ImageReader::with_format(Cursor::new(&source.bytes), format);
        reader.no_limits();
        let mut decoder = reader.into_decoder().map_err(broken)?;
        let (width, height) = decoder.dimensions();
        if decoder.total_bytes() > MAX_PICTURE_BYTES {
            return Err(problem(format!(
                "the picture says it has {width} × {height} pixels, more than 512 MB decoded"
            )));
        }
        let orientation = decoder.orientation().map_err(broken)?;
        let mut picture = DynamicImage::from_decoder(decoder).map_err(broken)?;
        picture.apply_orientation(orientation);

        let rgb = picture.into_rgb8();
        let (width, height) = rgb.dimensions();
        if width == 0 || height == 0 {
            return Err(problem("the picture has no pixels".into()));
        }
        let colour = rgb.into_raw();
        let bytes = if channels == 1 { grey(&colour) } else { colour };
        Ok(Pixels { height, width, channels, bytes })
    }

    /// The picture at another size, if that fits in memory.
    pub(super) fn resized(self, target: Target, filter: Filter) -> Result<Pixels, String> {
        let (height, width) = target.size_for(self.height, self.width);
        // Rows are resized before columns: the picture in between has the old height.
        for height in [height, self.height.into()] {
            let byte_len = height.checked_mul(width).and_then(|area| area.checked_mul(3));
            if byte_len.is_none_or(|len| len > MAX_PICTURE_BYTES) {
                return Err(format!("resizing gives {width} × {height} pixels, more than 512 MB"));
            }
        }
        Ok(resize(self, height as u32, width as u32, filter))
    }

    /// The middle of the picture; black where it is smaller than that.
    pub(super) fn center_cropped(&self, height: u32, width: u32) -> Pixels {
        let rows = Span::centered(self.height as usize, height as usize);
        let columns = Span::centered(self.width as usize, width as usize);
        let mut bytes = vec![0; height as usize * width as usize * self.channels];
        let copied = columns.len * self.channels;
        for row in 0..rows.len {
            let from = ((rows.from + row) * self.width as usize + columns.from) * self.channels;
            let to = ((rows.to + row) * width as usize + columns.to) * self.channels;
            bytes[to..to + copied].copy_from_slice(&self.bytes[from..from + copied]);
        }
        Pixels { height, width, channels: self.channels, bytes }
    }
}

/// Which part of one axis is copied where.
struct Span {
    from: usize,
    to: usize,
    len: usize,
}

impl Span {
    fn centered(size: usize, wanted: usize) -> Span {
        if size >= wanted {
            Span { from: (size - wanted) / 2, to: 0, len: wanted }
        } else {
            Span { from: 0, to: (wanted - size).div_ceil(2), len: size }
        }
    }
}

/// Whether a JPEG has its end marker. The decoder paints what is missing of a cut file grey.
fn jpeg_is_whole(bytes: &[u8]) -> bool {
    const SCAN: u8 = 0xda;
    // Segments before the picture data are skipped by their lengths: they may hold a thumbnail,
    // which is a JPEG with an end marker of its own.
    let mut place = 2;
    while let Some(&[0xff, marker, high, low]) = bytes.get(place..place + 4) {
        match marker {
            SCAN => return bytes[place..].windows(2).any(|pair| pair == [0xff, 0xd9]),
            0xff => place += 1,
            _ => place += 2 + usize::from(u16::from_be_bytes([high, low])),
        }
    }
    false
}

/// Brightness as Pillow weighs it (ITU-R 601), which is not how the decoder's library does.
fn grey(colour: &[u8]) -> Vec<u8> {
    let weigh = |pixel: &[u8]| {
        let [red, green, blue] = [pixel[0], pixel[1], pixel[2]].map(u32::from);
        ((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16) as u8
    };
    colour.chunks_exact(3).map(weigh).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The picture that the expected values were made from with Pillow 13.0.0.
    pub(crate) fn picture(width: u32, height: u32) -> image::RgbImage {
        image::RgbImage::from_fn(width, height, |x, y| {
            let value =
                |channel: u32| ((x * 7 + y * 13 + channel * 50 + (x * y) % 31 * 3) % 256) as u8;
            image::Rgb([value(0), value(1), value(2)])
        })
    }

    /// A picture as a file in memory.
    pub(crate) fn encoded(picture: impl Into<DynamicImage>, format: ImageFormat) -> Source {
        let mut bytes = Cursor::new(Vec::new());
        picture.into().write_to(&mut bytes, format).unwrap();
        Source::new("test.picture", bytes.into_inner())
    }

    #[test]
    fn alpha_is_left_behind_and_grey_spreads_to_all_channels() {
        let with_alpha = image::RgbaImage::from_pixel(2, 1, image::Rgba([10, 20, 30, 0]));
        let pixels = Pixels::decode(&encoded(with_alpha, ImageFormat::Png), 3).unwrap();
        assert_eq!(pixels.bytes, [10, 20, 30, 10, 20, 30]);
        let grey = image::GrayImage::from_pixel(1, 1, image::Luma([7]));
        let pixels = Pixels::decode(&encoded(grey, ImageFormat::Png), 3).unwrap();
        assert_eq!(pixels.bytes, [7, 7, 7]);
    }

    #[test]
    fn a_picture_taken_sideways_is_turned_upright() {
        let mut bytes = encoded(picture(16, 8), ImageFormat::Jpeg).bytes.to_vec();
        // An EXIF segment with one entry: orientation (0x112) is 6, a quarter turn.
        let exif = b"\xff\xe1\x00\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
        bytes.splice(2..2, exif.iter().copied());
        let pixels = Pixels::decode(&Source::new("side.jpg", bytes), 3).unwrap();
        assert_eq!((pixels.width, pixels.height), (8, 16));
    }

    #[test]
    fn a_crop_takes_the_middle_and_fills_with_black() {
        let pixels = Pixels { height: 1, width: 5, channels: 1, bytes: vec![1, 2, 3, 4, 5] };
        assert_eq!(pixels.center_cropped(1, 2).bytes, [2, 3]);
        assert_eq!(pixels.center_cropped(2, 3).bytes, [0, 0, 0, 2, 3, 4]);
        assert_eq!(pixels.center_cropped(1, 8).bytes, [0, 0, 1, 2, 3, 4, 5, 0]);
    }

    #[test]
    fn broken_pictures_say_what_is_wrong() {
        let message = |bytes: Vec<u8>| {
            Pixels::decode(&Source::new("a.png", bytes), 3).unwrap_err().to_string()
        };
        assert_eq!(message(vec![]), "a.png: this is neither a PNG nor a JPEG");
        assert_eq!(message(b"GIF89a......".to_vec()), "a.png: this is neither a PNG nor a JPEG");
        for format in [ImageFormat::Png, ImageFormat::Jpeg] {
            let whole = encoded(picture(64, 64), format).bytes.to_vec();
            for len in [9, 30, whole.len() / 2] {
                let cut = message(whole[..len].to_vec());
                assert!(cut.starts_with("a.png: the picture cannot be read: "), "{format:?} {cut}");
            }
        }
    }

    #[test]
    fn pictures_that_would_fill_memory_are_refused_before_they_do() {
        // A small file whose header claims 60 000 × 60 000 pixels. The header has a checksum.
        let mut bomb = encoded(picture(1, 1), ImageFormat::Png).bytes.to_vec();
        bomb[16..24].copy_from_slice(&[0, 0, 0xea, 0x60, 0, 0, 0xea, 0x60]);
        let checksum = crc32(&bomb[12..29]);
        bomb[29..33].copy_from_slice(&checksum.to_be_bytes());
        let message = Pixels::decode(&Source::new("bomb", bomb), 3).unwrap_err().to_string();
        assert!(message.contains("60000 × 60000 pixels, more than 512 MB"), "{message}");

        // A thin picture grows beyond bounds where a model scales its shorter side.
        let thin = Pixels { height: 1, width: 100_000, channels: 3, bytes: vec![0; 300_000] };
        let target = Target::Shortest { shortest: 224, longest: None };
        let message = thin.resized(target, Filter::Nearest).unwrap_err();
        assert_eq!(message, "resizing gives 22400000 × 224 pixels, more than 512 MB");
    }

    /// The checksum of PNG chunks.
    fn crc32(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
            })
        })
    }
}
