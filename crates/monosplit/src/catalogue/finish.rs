//! Options of an experiment's methods that say how an attribution becomes a map. They stand among the options of the method, so
//! that formulas and ablations vary them like any other.

use monosplit_explain::{Absolute, ChannelReduction, Finish, Upsampling};
use monosplit_graph::{Options, Result};

use super::MethodEntry;

/// The names of the options.
const KEYS: [&str; 4] = ["abs", "channels", "rectify", "upsampling"];

/// The text of a method without these options, how maps are made, and those options that differ from their default, in alphabetical
/// order. A method's own option of the same name stays with the method.
pub fn split_finish(text: &str) -> Result<(String, Finish, Vec<String>)> {
    let (name, inline) = text.split_once(':').unwrap_or((text, ""));
    let entry = MethodEntry::find(name)?;
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for part in inline.split(',').filter(|part| !part.trim().is_empty()) {
        let key = part.split('=').next().unwrap_or_default().trim().to_ascii_lowercase();
        let of_method = entry.options.iter().any(|option| option.key == key);
        if KEYS.contains(&&*key) && !of_method { own.push(part) } else { others.push(part) }
    }
    let rest = if others.is_empty() { name.to_owned() } else { format!("{name}:{}", others.join(",")) };
    let mut options = Options::parse(&own.join(","))?.of(entry.name, KEYS);
    let finish = read(&mut options)?;
    let mut kept = Vec::new();
    for key in KEYS {
        let is_default = matches!(
            (key, options.settled(key)),
            (_, None) | ("abs", Some("none")) | ("channels", Some("own")) | ("upsampling", Some("bilinear"))
        ) || (key == "rectify" && !finish.rectified);
        if !is_default {
            kept.push(format!("{key}={}", options.settled(key).unwrap_or_default()));
        }
    }
    Ok((rest, finish, kept))
}

fn read(options: &mut Options) -> Result<Finish> {
    let channels = [
        ("own", ChannelReduction::Own),
        ("sum", ChannelReduction::Sum),
        ("mean", ChannelReduction::Mean),
        ("max", ChannelReduction::Max),
        ("l2", ChannelReduction::L2),
        ("positive", ChannelReduction::Positive),
    ];
    let absolute = [("none", Absolute::None), ("map", Absolute::Map), ("channels", Absolute::Channels)];
    let upsampling = [("bilinear", Upsampling::Bilinear), ("nearest", Upsampling::Nearest)];
    Ok(Finish {
        channels: options.one_of("channels", ChannelReduction::Own, &channels)?,
        absolute: options.one_of("abs", Absolute::None, &absolute)?,
        rectified: options.flag("rectify", false)?,
        upsampling: options.one_of("upsampling", Upsampling::Bilinear, &upsampling)?,
        ..Finish::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_maps_are_told_from_those_of_methods() {
        let (rest, finish, kept) =
            split_finish("splitcam:alpha=0.3, upsampling=nearest,abs=channels,channels=own").unwrap();
        assert_eq!(rest, "splitcam:alpha=0.3");
        assert_eq!((finish.upsampling, finish.absolute), (Upsampling::Nearest, Absolute::Channels));
        assert_eq!(kept, ["abs=channels", "upsampling=nearest"]);
        // Guided Grad-CAM enlarges its coarse map itself.
        let (rest, finish, kept) = split_finish("guided-gradcam:upsampling=nearest").unwrap();
        assert_eq!(
            (rest.as_str(), finish, kept.len()),
            ("guided-gradcam:upsampling=nearest", Finish::default(), 0)
        );
        let message = split_finish("splitcam:channels=first").unwrap_err().to_string();
        assert!(message.contains("own, sum, mean, max, l2, positive"), "{message}");
    }
}
