//! What a picture goes through before a model sees it, as `preprocessor_config.json` states it.
//!
//! The steps and their order are those of Hugging Face image processors: resize, centre crop,
//! rescale, normalise. A setting that asks for anything else is refused by name.

use serde::Deserialize;
use serde_json::Value as Json;

use super::resize::Filter;
use super::{InputError, Sidecars};

/// The steps, in order; those that are `None` are left out.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Recipe {
    pub(super) resize: Option<(Target, Filter)>,
    /// Height and width.
    pub(super) crop: Option<(u32, u32)>,
    pub(super) rescale: Option<f64>,
    pub(super) normalize: Option<Normalize>,
    /// Blue first instead of red first.
    pub(super) flip_channels: bool,
}

/// How large a picture becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// This height and width, whatever that does to proportions.
    Exact(u32, u32),
    /// The shorter side becomes `shortest`, unless that makes the longer one exceed `longest`.
    Shortest { shortest: u32, longest: Option<u32> },
}

/// Mean and standard deviation, one for each channel or one for all.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Normalize {
    pub(super) mean: Vec<f32>,
    pub(super) std: Vec<f32>,
}

impl Recipe {
    /// Reads the recipe of a model.
    pub(super) fn read(sidecars: &Sidecars) -> Result<Recipe, InputError> {
        let purpose = "says how pictures become its input";
        let (file, json) = sidecars
            .processor("image_processor")?
            .ok_or(InputError::MissingFile { file: "preprocessor_config.json", purpose })?;
        if let Some(setting) = unsupported_setting(&json) {
            let what = format!("`{setting}`");
            return Err(InputError::Unsupported { file: file.to_owned(), what });
        }
        let config: Config =
            serde_json::from_value(json).map_err(|error| InputError::bad_file(file, error))?;
        if let Some(what) = config.unsupported_processor() {
            return Err(InputError::Unsupported { file: file.to_owned(), what });
        }
        config.recipe().map_err(|problem| InputError::bad_file(file, problem))
    }
}

impl Target {
    /// The size that a picture of this height and width gets.
    pub(super) fn size_for(self, height: u32, width: u32) -> (u64, u64) {
        let (shortest, longest) = match self {
            Target::Exact(height, width) => return (height.into(), width.into()),
            Target::Shortest { shortest, longest } => (f64::from(shortest), longest),
        };
        let (short, long) = (f64::from(height.min(width)), f64::from(height.max(width)));
        let limited = longest.map(f64::from).filter(|longest| long / short * shortest > *longest);
        // The shorter side is rounded before, the longer one computed from what it was rounded
        // from and cut off: that is how the processors that models were trained with do it.
        let (exact, rounded) = match limited {
            Some(longest) => {
                let exact = longest * short / long;
                (exact, exact.round_ties_even().max(1.0))
            }
            None => (shortest, shortest),
        };
        if rounded == short {
            return (height.into(), width.into());
        }
        let (short, long) = (rounded as u64, (exact * long / short) as u64);
        if height <= width { (short, long) } else { (long, short) }
    }
}

/// Settings that change what a model sees in ways that the recipe has no step for.
const UNSUPPORTED: [&str; 13] = [
    "do_align_long_axis",
    "do_image_splitting",
    "do_pan_and_scan",
    "do_thumbnail",
    "max_image_tiles",
    "max_num_patches",
    "max_patches",
    "merge_size",
    "offset",
    "pad_size",
    "patch_size",
    "rescale_offset",
    "size_divisor",
];

fn unsupported_setting(json: &Json) -> Option<&'static str> {
    let is_set =
        |name: &str| !matches!(json.get(name), None | Some(Json::Null | Json::Bool(false)));
    // Detection models pad a batch to its largest picture. Holdfast takes pictures of one size,
    // for which that changes nothing; they are known by their limit on the longer side.
    let limits_longer_side = is_set("max_size")
        || json.get("size").is_some_and(|size| size.get("longest_edge").is_some());
    if is_set("do_pad") && !limits_longer_side {
        return Some("do_pad");
    }
    UNSUPPORTED.into_iter().find(|name| is_set(name))
}

/// The processors of Hugging Face that do the steps of a recipe and nothing else, and what a
/// plain number as `size` means to them.
const PLAIN_PROCESSORS: [(&str, NumberIs); 18] = [
    ("Beit", NumberIs::BothSides),
    ("Bit", NumberIs::ShorterSide),
    ("Blip", NumberIs::BothSides),
    ("CLIP", NumberIs::ShorterSide),
    ("ChineseCLIP", NumberIs::ShorterSide),
    ("ConditionalDetr", NumberIs::ShorterSide),
    ("ConvNext", NumberIs::ShorterSide),
    ("DeformableDetr", NumberIs::ShorterSide),
    ("DeiT", NumberIs::BothSides),
    ("Detr", NumberIs::ShorterSide),
    ("MobileNetV1", NumberIs::ShorterSide),
    ("MobileNetV2", NumberIs::ShorterSide),
    ("MobileViT", NumberIs::ShorterSide),
    ("OwlViT", NumberIs::BothSides),
    ("RTDetr", NumberIs::BothSides),
    ("Segformer", NumberIs::BothSides),
    ("Siglip", NumberIs::BothSides),
    ("ViT", NumberIs::BothSides),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum NumberIs {
    BothSides,
    ShorterSide,
}

/// No model looks at more; a crop may be larger than the picture, so it needs a bound.
const MAX_CROP: u32 = 8192;

#[derive(Deserialize)]
struct Config {
    image_processor_type: Option<String>,
    feature_extractor_type: Option<String>,
    do_resize: Option<bool>,
    size: Option<Size>,
    max_size: Option<u32>,
    resample: Option<u8>,
    crop_pct: Option<f64>,
    do_center_crop: Option<bool>,
    crop_size: Option<Size>,
    do_rescale: Option<bool>,
    rescale_factor: Option<f64>,
    do_normalize: Option<bool>,
    image_mean: Option<Numbers>,
    image_std: Option<Numbers>,
    do_flip_channel_order: Option<bool>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Size {
    Number(u32),
    HeightAndWidth(u32, u32),
    Sides {
        height: Option<u32>,
        width: Option<u32>,
        shortest_edge: Option<u32>,
        longest_edge: Option<u32>,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Numbers {
    One(f32),
    Many(Vec<f32>),
}

impl Config {
    fn recipe(self) -> Result<Recipe, String> {
        let wanted = self.do_resize.unwrap_or(self.size.is_some());
        let target = if wanted { Some(self.target()?) } else { None };
        let mut crop = None;
        if self.do_center_crop.unwrap_or(false) {
            let size =
                self.crop_size.ok_or("`do_center_crop` is on, but `crop_size` is missing")?;
            let (height, width) = size.exact().ok_or("`crop_size` needs a height and a width")?;
            if !(1..=MAX_CROP).contains(&height) || !(1..=MAX_CROP).contains(&width) {
                return Err(format!("`crop_size` must be from 1 to {MAX_CROP}"));
            }
            crop = Some((height, width));
        }
        let mut resize = None;
        if let Some(mut target) = target {
            // ConvNeXt crops by a share of the picture instead of by `crop_size`.
            if let (Some(share), Target::Shortest { shortest, .. }) = (self.crop_pct, target) {
                if !(share > 0.0 && share <= 1.0) {
                    return Err(format!("`crop_pct` is {share}, not a share of the picture"));
                }
                if shortest < 384 {
                    let larger = (f64::from(shortest) / share) as u32;
                    target = Target::Shortest { shortest: larger, longest: None };
                    crop = Some((shortest, shortest));
                } else {
                    target = Target::Exact(shortest, shortest);
                }
            }
            resize = Some((target, filter(self.resample)?));
        }

        let rescale =
            self.do_rescale.unwrap_or(true).then(|| self.rescale_factor.unwrap_or(1.0 / 255.0));
        let has_statistics = self.image_mean.is_some() && self.image_std.is_some();
        let mut normalize = None;
        if self.do_normalize.unwrap_or(has_statistics) {
            let (Some(mean), Some(std)) = (self.image_mean, self.image_std) else {
                return Err(
                    "`do_normalize` is on, but `image_mean` or `image_std` is missing".into()
                );
            };
            normalize = Some(Normalize { mean: mean.list(), std: std.list() });
        }
        if normalize.as_ref().is_some_and(|normalize| normalize.std.contains(&0.0)) {
            return Err("`image_std` has a 0".into());
        }
        let flip_channels = self.do_flip_channel_order.unwrap_or(false);
        Ok(Recipe { resize, crop, rescale, normalize, flip_channels })
    }

    fn target(&self) -> Result<Target, String> {
        let size = self.size.ok_or("`do_resize` is on, but `size` is missing")?;
        let target = match size {
            Size::Number(shortest) if self.number_is() == NumberIs::ShorterSide => {
                Some(Target::Shortest { shortest, longest: self.max_size })
            }
            Size::Sides { shortest_edge: Some(shortest), longest_edge: longest, .. } => {
                Some(Target::Shortest { shortest, longest })
            }
            size => size.exact().map(|(height, width)| Target::Exact(height, width)),
        };
        let target = target.ok_or("`size` needs `height` and `width`, or `shortest_edge`")?;
        match target {
            Target::Exact(0, _) | Target::Exact(_, 0) => Err("`size` is 0".into()),
            Target::Shortest { shortest: 0, .. } | Target::Shortest { longest: Some(0), .. } => {
                Err("`size` is 0".into())
            }
            target => Ok(target),
        }
    }

    /// The name of the processor without the words that differ between versions.
    fn processor(&self) -> Option<&str> {
        let class = self.image_processor_type.as_ref().or(self.feature_extractor_type.as_ref())?;
        let class = class.trim_end_matches("Fast");
        let name = class.strip_suffix("ImageProcessor");
        Some(name.or(class.strip_suffix("FeatureExtractor")).unwrap_or(class))
    }

    fn unsupported_processor(&self) -> Option<String> {
        let name = self.processor()?;
        if !PLAIN_PROCESSORS.iter().any(|(plain, _)| *plain == name) {
            return Some(format!("the steps of the processor \"{name}\""));
        }
        (self.crop_pct.is_some() && name != "ConvNext").then(|| "`crop_pct`".to_owned())
    }

    fn number_is(&self) -> NumberIs {
        let plain = self.processor().and_then(|name| {
            PLAIN_PROCESSORS.iter().find(|(plain, _)| *plain == name).map(|(_, number)| *number)
        });
        // A crop after the resize only makes sense if the resize kept proportions.
        plain.unwrap_or(match self.do_center_crop {
            Some(true) => NumberIs::ShorterSide,
            Some(false) | None => NumberIs::BothSides,
        })
    }
}

impl Size {
    fn exact(self) -> Option<(u32, u32)> {
        match self {
            Size::Number(side) => Some((side, side)),
            Size::HeightAndWidth(height, width) => Some((height, width)),
            Size::Sides { height: Some(height), width: Some(width), .. } => Some((height, width)),
            // What older configurations turn into when a newer library saves them again.
            Size::Sides { shortest_edge: Some(side), longest_edge: None, .. } => Some((side, side)),
            Size::Sides { .. } => None,
        }
    }
}

impl Numbers {
    fn list(self) -> Vec<f32> {
        match self {
            Numbers::One(number) => vec![number],
            Numbers::Many(numbers) => numbers,
        }
    }
}

/// Bilinear where the file does not say.
fn filter(number: Option<u8>) -> Result<Filter, String> {
    let number = number.unwrap_or(2);
    Filter::from_number(number)
        .ok_or_else(|| format!("`resample` is {number}; Pillow's filters are 0 to 5"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Recipe, String> {
        let sidecars = Sidecars::from_iter([("preprocessor_config.json", json.to_owned())]);
        Recipe::read(&sidecars).map_err(|error| error.to_string())
    }

    const BILINEAR: Filter = Filter::Bilinear;
    const BICUBIC: Filter = Filter::Bicubic;

    #[test]
    fn vit_squeezes_to_a_square_in_its_old_and_new_spelling() {
        let statistics = Normalize { mean: vec![0.5; 3], std: vec![0.5; 3] };
        let expected = Recipe {
            resize: Some((Target::Exact(224, 224), BILINEAR)),
            crop: None,
            rescale: Some(1.0 / 255.0),
            normalize: Some(statistics),
            flip_channels: false,
        };
        let old = r#"{"do_normalize": true, "do_resize": true, "image_mean": [0.5, 0.5, 0.5],
            "feature_extractor_type": "ViTFeatureExtractor", "image_std": [0.5, 0.5, 0.5],
            "resample": 2, "size": 224}"#;
        let new = r#"{"do_normalize": true, "do_rescale": true, "do_resize": true,
            "image_mean": [0.5, 0.5, 0.5], "image_processor_type": "ViTImageProcessorFast",
            "image_std": [0.5, 0.5, 0.5], "resample": 2, "rescale_factor": 0.00392156862745098,
            "size": {"height": 224, "width": 224}, "do_convert_rgb": null, "pad_size": null}"#;
        assert_eq!(read(old).unwrap(), expected);
        assert_eq!(read(new).unwrap(), expected);
    }

    #[test]
    fn clip_keeps_proportions_and_crops_in_its_old_and_new_spelling() {
        let old = read(
            r#"{"crop_size": 224, "do_center_crop": true, "do_normalize": false, "do_resize": true,
                "feature_extractor_type": "CLIPFeatureExtractor", "resample": 3, "size": 224}"#,
        );
        let new = read(
            r#"{"crop_size": {"height": 224, "width": 224}, "do_center_crop": true,
                "do_normalize": false, "image_processor_type": "CLIPImageProcessor",
                "resample": 3, "size": {"shortest_edge": 224}}"#,
        );
        let recipe = old.unwrap();
        let target = Target::Shortest { shortest: 224, longest: None };
        assert_eq!(recipe.resize, Some((target, BICUBIC)));
        assert_eq!(recipe.crop, Some((224, 224)));
        assert_eq!(new.unwrap(), recipe);
    }

    #[test]
    fn convnext_crops_a_share_of_small_pictures_only() {
        let recipe = |edge: u32| {
            read(&format!(
                r#"{{"size": {{"shortest_edge": {edge}}}, "crop_pct": 0.875, "do_resize": true,
                    "image_processor_type": "ConvNextImageProcessor", "do_normalize": false}}"#
            ))
            .unwrap()
        };
        let small = recipe(224);
        let larger = Target::Shortest { shortest: 256, longest: None };
        assert_eq!((small.resize, small.crop), (Some((larger, BILINEAR)), Some((224, 224))));
        let large = recipe(384);
        assert_eq!(large.resize, Some((Target::Exact(384, 384), BILINEAR)));
        assert_eq!(large.crop, None);
    }

    #[test]
    fn sizes_follow_the_shorter_side_up_to_a_limit() {
        // Expected sizes from a Python rendering of transformers' rule.
        let clip = Target::Shortest { shortest: 224, longest: None };
        assert_eq!(clip.size_for(480, 640), (224, 298));
        assert_eq!(clip.size_for(333, 100), (745, 224));
        let detr = Target::Shortest { shortest: 800, longest: Some(1333) };
        assert_eq!(detr.size_for(480, 640), (800, 1066));
        assert_eq!(detr.size_for(300, 1000), (400, 1333));
        assert_eq!(detr.size_for(1000, 1), (1000, 1));
        assert_eq!(detr.size_for(1000, 7), (1333, 9));
    }

    #[test]
    fn what_the_recipe_cannot_do_or_lacks_is_an_error() {
        let missing = Recipe::read(&Sidecars::default()).unwrap_err().to_string();
        assert!(missing.starts_with("this model has no preprocessor_config.json, which says how"));
        for (json, expected) in [
            (r#"{"do_image_splitting": true}"#, "asks for `do_image_splitting`, which Holdfast"),
            (r#"{"do_pad": true, "size": 9}"#, "asks for `do_pad`"),
            (r#"{"image_processor_type": "SamImageProcessor"}"#, "the processor \"Sam\""),
            (r#"{"image_processor_type": "ViTImageProcessor", "crop_pct": 0.9}"#, "`crop_pct`"),
            (r#"{"do_resize": true}"#, "`do_resize` is on, but `size` is missing"),
            (r#"{"do_center_crop": true}"#, "`crop_size` is missing"),
            (r#"{"do_center_crop": true, "crop_size": 9999}"#, "must be from 1 to 8192"),
            (r#"{"do_normalize": true}"#, "`image_mean` or `image_std` is missing"),
            (r#"{"size": {"longest_edge": 9}}"#, "`size` needs `height` and `width`"),
            (r#"{"size": 0}"#, "`size` is 0"),
            (r#"{"size": 9, "resample": 9}"#, "`resample` is 9"),
            (r#"{"image_mean": [0], "image_std": [0]}"#, "`image_std` has a 0"),
            (r#"{"size": "big"}"#, "is not valid"),
            ("[]", "is not valid"),
        ] {
            let message = read(json).unwrap_err();
            assert!(message.contains(expected), "{json}: {message}");
        }
    }
}
