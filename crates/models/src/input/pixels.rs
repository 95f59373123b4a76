//! Pictures as bytes per pixel: decoding with limits, resizing as Pillow does, cropping.

use std::io::Cursor;

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{PixelType, ResizeAlg, ResizeOptions, Resizer};
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader};

use super::recipe::Target;
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

    /// The picture at another size, through one of Pillow's filters.
    pub(super) fn resized(self, target: Target, filter: ResizeAlg) -> Result<Pixels, String> {
        let (height, width) = target.size_for(self.height, self.width);
        if (height, width) == (self.height.into(), self.width.into()) {
            return Ok(self);
        }
        let too_large = || format!("resizing gives {width} × {height} pixels, more than 512 MB");
        let byte_len = height.checked_mul(width).and_then(|area| area.checked_mul(4));
        byte_len.filter(|&len| len <= MAX_PICTURE_BYTES).ok_or_else(too_large)?;
        let height = u32::try_from(height).map_err(|_| too_large())?;
        let width = u32::try_from(width).map_err(|_| too_large())?;

        let kind = if self.channels == 1 { PixelType::U8 } else { PixelType::U8x3 };
        let from = ImageRef::new(self.width, self.height, &self.bytes, kind)
            .map_err(|error| error.to_string())?;
        let mut to = Image::new(width, height, kind);
        Resizer::new()
            .resize(&from, &mut to, &ResizeOptions::new().resize_alg(filter))
            .map_err(|error| error.to_string())?;
        Ok(Pixels { height, width, channels: self.channels, bytes: to.into_vec() })
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

/// Brightness as Pillow weighs it (ITU-R 601), which is not how the decoder's library does.
fn grey(colour: &[u8]) -> Vec<u8> {
    let weigh = |pixel: &[u8]| {
        let [red, green, blue] = [pixel[0], pixel[1], pixel[2]].map(u32::from);
        ((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16) as u8
    };
    colour.chunks_exact(3).map(weigh).collect()
}
