//! Architectures as text: one layer a line, from input to scores.

use std::fmt;
use std::str::FromStr;

use monosplit_graph::{Error, Result};

/// The largest number of layers accepted.
const MAX_LAYERS: usize = 1000;
/// The largest number accepted in a line.
const MAX_NUMBER: usize = 1 << 20;

/// The network of the paper's appendix D with three hidden layers of 800 rank-2 maxout units.
const MLP_MAXOUT: &str = "\
dense 1600
norm
maxout 2
dense 1600
norm
maxout 2
dense 1600
norm
maxout 2
scores";

/// The convolutional network of the paper's appendix D. The paper names the widths and the 6272 = 128·7·7 elements that
/// are left of a digit, not where it was halved: after the second and the fourth convolution, here. Its
/// dense layers have norms as well: without them the restricted networks hardly train.
const CNN_MAXOUT: &str = "\
conv 64 3
norm
maxout 2
conv 128 3
norm
maxout 2
pool 2
conv 256 3
norm
maxout 2
conv 256 3
norm
maxout 2
pool 2
dense 2048
norm
maxout 2
dense 512
norm
maxout 2
scores";

/// The named architectures and their text.
pub const NAMED: [(&str, &str); 2] = [("mlp_maxout", MLP_MAXOUT), ("cnn_maxout", CNN_MAXOUT)];

/// One layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerSpec {
    /// `conv CHANNELS KERNEL [stride S] [pad P]`: a convolution with square kernels. Unless told otherwise the padding
    /// keeps the size.
    Conv {
        /// Output channels.
        channels: usize,
        /// Side of the kernel.
        kernel: usize,
        /// Stride.
        stride: usize,
        /// Zero padding.
        pad: usize,
    },
    /// `dense WIDTH`: a fully connected layer.
    Dense {
        /// Number of outputs.
        width: usize,
    },
    /// `scores`: an affine map to one score per class.
    Scores,
    /// `norm`: batch normalisation.
    Norm,
    /// `maxout RANK`: the largest of every `RANK` neighbouring channels.
    Maxout {
        /// Number of channels in a group.
        rank: usize,
    },
    /// `relu`
    Relu,
    /// `pool SIZE`: the largest element of every square.
    Pool {
        /// Side of the window, and stride.
        size: usize,
    },
    /// `average SIZE`: the mean of every square.
    Average {
        /// Side of the window, and stride.
        size: usize,
    },
}

/// Layers one after the other, ending in class scores.
///
/// ```
/// use monosplit_train::{Architecture, LayerSpec};
///
/// let small: Architecture = "conv 16 3 stride 2   # halves the picture\nnorm\nmaxout 2\nscores".parse()?;
/// assert_eq!(small.layers()[2], LayerSpec::Maxout { rank: 2 });
/// let named = Architecture::named("cnn_maxout")?;
/// assert_eq!(named.name(), "cnn_maxout");
/// # Ok::<(), monosplit_graph::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Architecture {
    name: String,
    layers: Vec<LayerSpec>,
}

impl Architecture {
    /// The architecture of that name.
    pub fn named(name: &str) -> Result<Self> {
        let Some((name, text)) = NAMED.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = NAMED.iter().map(|(name, _)| *name).collect();
            return Err(Error::argument(format!(
                "there is no architecture '{name}'; there are {}, or name a file that describes one",
                known.join(" and ")
            )));
        };
        Ok(text.parse::<Architecture>()?.with_name(name))
    }

    /// The same architecture under another name.
    #[must_use]
    pub fn with_name(self, name: &str) -> Self {
        Architecture { name: name.to_owned(), ..self }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The layers from input to scores.
    pub fn layers(&self) -> &[LayerSpec] {
        &self.layers
    }
}

impl FromStr for Architecture {
    type Err = Error;

    /// Reads one layer a line. `#` starts a comment; `;` ends a layer like a line break.
    fn from_str(text: &str) -> Result<Self> {
        let mut layers = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or("");
            for layer in line.split(';').map(str::trim).filter(|layer| !layer.is_empty()) {
                let layer = layer.parse::<LayerSpec>();
                layers
                    .push(layer.map_err(|e| e.context(format!("line {} of the architecture", number + 1)))?);
                if layers.len() > MAX_LAYERS {
                    return Err(Error::argument(format!(
                        "the architecture has more than {MAX_LAYERS} layers"
                    )));
                }
            }
        }
        let scores = layers.iter().filter(|layer| **layer == LayerSpec::Scores).count();
        if layers.last() != Some(&LayerSpec::Scores) || scores != 1 {
            return Err(Error::argument("an architecture ends with the line 'scores', and has only one"));
        }
        Ok(Architecture { name: "network".to_owned(), layers })
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.layers.iter().try_for_each(|layer| writeln!(f, "{layer}"))
    }
}

impl FromStr for LayerSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let layer = match words.as_slice() {
            ["scores"] => Some(LayerSpec::Scores),
            ["norm"] => Some(LayerSpec::Norm),
            ["relu"] => Some(LayerSpec::Relu),
            ["dense", width] => number(width).map(|width| LayerSpec::Dense { width }),
            ["maxout", rank] => number(rank).map(|rank| LayerSpec::Maxout { rank }),
            ["pool", size] => number(size).map(|size| LayerSpec::Pool { size }),
            ["average", size] => number(size).map(|size| LayerSpec::Average { size }),
            ["conv", channels, kernel, options @ ..] => convolution(channels, kernel, options),
            _ => None,
        };
        layer.ok_or_else(|| {
            let shown: String = text.chars().take(60).filter(|c| !c.is_control()).collect();
            Error::argument(format!(
                "'{shown}' is none of: conv CHANNELS KERNEL [stride S] [pad P], dense WIDTH, norm, maxout RANK, relu, \
                 pool SIZE, average SIZE, scores, with numbers from 1 to {MAX_NUMBER}"
            ))
        })
    }
}

fn number(word: &str) -> Option<usize> {
    word.parse().ok().filter(|n| (1..=MAX_NUMBER).contains(n))
}

fn convolution(channels: &str, kernel: &str, options: &[&str]) -> Option<LayerSpec> {
    let (channels, kernel) = (number(channels)?, number(kernel)?);
    let (mut stride, mut pad) = (1, kernel / 2);
    for option in options.chunks(2) {
        match option {
            ["stride", steps] => stride = number(steps)?,
            ["pad", "0"] => pad = 0,
            ["pad", zeros] => pad = number(zeros)?,
            _ => return None,
        }
    }
    Some(LayerSpec::Conv { channels, kernel, stride, pad })
}

impl fmt::Display for LayerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayerSpec::Conv { channels, kernel, stride, pad } => {
                write!(f, "conv {channels} {kernel} stride {stride} pad {pad}")
            }
            LayerSpec::Dense { width } => write!(f, "dense {width}"),
            LayerSpec::Scores => f.write_str("scores"),
            LayerSpec::Norm => f.write_str("norm"),
            LayerSpec::Maxout { rank } => write!(f, "maxout {rank}"),
            LayerSpec::Relu => f.write_str("relu"),
            LayerSpec::Pool { size } => write!(f, "pool {size}"),
            LayerSpec::Average { size } => write!(f, "average {size}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_reads_back() {
        for (name, text) in NAMED {
            let architecture: Architecture = text.parse().unwrap();
            assert_eq!(architecture.to_string().parse::<Architecture>().unwrap(), architecture, "{name}");
        }
        let text = "conv 8 5 pad 0 stride 3; relu; average 2\n\n# done\nscores";
        let layers = text.parse::<Architecture>().unwrap();
        assert_eq!(layers.layers()[0], LayerSpec::Conv { channels: 8, kernel: 5, stride: 3, pad: 0 });
        assert_eq!(layers.to_string().parse::<Architecture>().unwrap(), layers);
    }

    #[test]
    fn mistakes_name_their_line() {
        for text in ["", "dense 10", "scores\nscores", "scores\ndense 10"] {
            assert!(text.parse::<Architecture>().unwrap_err().to_string().contains("scores"), "{text}");
        }
        for line in
            ["dense", "dense 0", "dense -1", "dense 99999999999999999999", "conv 8 3 stride", "lstm 4"]
        {
            let error = format!("norm\n{line}\nscores").parse::<Architecture>().unwrap_err();
            assert!(error.to_string().starts_with("line 2"), "{error}");
        }
    }
}
