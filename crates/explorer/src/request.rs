//! What the page asks for, as it is written in JSON: `{"type": "explain", …}`.

use serde::Deserialize;

/// A request. Files come beside it, as bytes.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(tag = "type", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Request {
    /// What is open, and which methods there are.
    State,
    /// Opens the network in the bytes of an ONNX file.
    OpenNetwork {
        /// The file's name, without its folder.
        name: String,
    },
    /// Opens the picture in the bytes of a file, of any format that is read.
    OpenPicture {
        /// The file's name, without its folder.
        name: String,
    },
    /// The picture as the network reads it, and the classes with their scores.
    Classes {
        /// The picture.
        subject: Subject,
        /// How many classes; those with the highest scores.
        #[serde(default = "ten")]
        count: usize,
        /// Classes that are listed whatever their scores.
        #[serde(default)]
        and: Vec<usize>,
    },
    /// Maps at a layer each.
    Explain {
        /// What is explained.
        #[serde(flatten)]
        question: Question,
        /// The methods, of which there are at most [`Request::MOST_MAPS`].
        maps: Vec<MapChoice>,
        /// Whether maps of the split are given for `g`, for `h` and for their difference.
        #[serde(default)]
        streams: bool,
    },
    /// The map of one method at all layers of the strip.
    Layers {
        /// What is explained.
        #[serde(flatten)]
        question: Question,
        /// The method; its layer is not read.
        map: MapChoice,
    },
    /// How the explained score falls and rises as pixels are removed and put in, by the map and at random.
    Curves {
        /// What is explained.
        #[serde(flatten)]
        question: Question,
        /// The map.
        map: MapChoice,
        /// How many steps each curve has.
        #[serde(default = "ten")]
        steps: usize,
    },
    /// What each layer contributes to a map, by the closed formula.
    Shares {
        /// What is explained.
        #[serde(flatten)]
        question: Question,
        /// The map.
        map: MapChoice,
    },
    /// The statements of the theory, checked on the network at the picture.
    Verify {
        /// The picture.
        subject: Subject,
        /// How many pairs of inputs are tried.
        #[serde(default = "three")]
        samples: usize,
    },
    /// The network and its maps as one ONNX file.
    Compile {
        /// What is explained.
        #[serde(flatten)]
        question: Question,
        /// The maps.
        maps: Vec<MapChoice>,
    },
    /// A map as a file.
    Download {
        /// What is explained.
        #[serde(flatten)]
        question: Question,
        /// The map.
        map: MapChoice,
        /// The format.
        format: FileFormat,
    },
    /// The lines for the program, for Python and for Rust that compute the same map.
    Lines {
        /// What is explained.
        #[serde(flatten)]
        question: Question,
        /// The map.
        map: MapChoice,
    },
}

impl Request {
    /// The most maps of one request.
    pub const MOST_MAPS: usize = 4;
}

/// A picture as it is given to the network.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Subject {
    /// The number of an opened picture.
    pub picture: usize,
    /// The preprocessing: a preset's name; without one, what the network asks for.
    #[serde(default)]
    pub preset: Option<String>,
    /// What is changed of it, one after the other.
    #[serde(default)]
    pub edits: Vec<Edit>,
}

/// What is explained of which picture.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Question {
    /// The picture.
    pub subject: Subject,
    /// The class; without one, that with the highest score.
    #[serde(default)]
    pub class: Option<usize>,
    /// The class it is explained against.
    #[serde(default)]
    pub rival: Option<usize>,
    /// The shift α of the methods that have one.
    #[serde(default)]
    pub alpha: Option<f64>,
}

/// A method at a layer.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct MapChoice {
    /// The method, perhaps with options: `lrp:gamma=0.1`.
    pub method: String,
    /// The layer; an empty name is the image, and without one it is the method's own.
    #[serde(default)]
    pub layer: Option<String>,
}

/// A change of a part of the picture. Positions are pixels of the picture as the network reads it.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Edit {
    /// What the part becomes.
    pub becomes: Becomes,
    /// The other picture, where the part is taken from one.
    #[serde(default)]
    pub with: Option<usize>,
    /// The part.
    #[serde(flatten)]
    pub part: Part,
}

/// What a part of a picture becomes.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Becomes {
    /// Middle grey.
    Grey,
    /// Blurred.
    Blur,
    /// The same part of another picture.
    Swap,
}

/// A part of a picture.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// A rectangle: left, top, right, bottom; the last two are outside.
    Rectangle([i64; 4]),
    /// The stroke of a round brush.
    Stroke {
        /// Half the brush's width.
        radius: f64,
        /// Where it went, `[x, y, x, y, …]`.
        points: Vec<f64>,
    },
}

/// The format of a map's file.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum FileFormat {
    /// A picture of the map over the photograph.
    Png,
    /// The same as a drawing.
    Svg,
    /// The values, as NumPy reads them.
    Npy,
    /// The picture as the network reads it, edits and all.
    Picture,
}

fn ten() -> usize {
    10
}

fn three() -> usize {
    3
}
