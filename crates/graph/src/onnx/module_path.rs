//! Which PyTorch module a node came from. Exporters leave traces of it in node names, in the names of the
//! weights a node reads and in the properties of the node; each is read here.

use super::model::NodeProto;

/// The property of a node in which this crate keeps the path.
pub(crate) const PROPERTY: &str = "monosplit.module";

/// Last parts of names that PyTorch gives to the parameters of a module.
const PARAMETERS: [&str; 9] = [
    "weight",
    "bias",
    "running_mean",
    "running_var",
    "in_proj_weight",
    "in_proj_bias",
    "num_batches_tracked",
    "gamma",
    "beta",
];

/// The path of the module (`layer4.1.conv2`), empty if the file does not tell. `weights` are the names of
/// the constants the node reads.
pub(crate) fn module_path<'w>(node: &NodeProto, weights: impl Iterator<Item = &'w str>) -> String {
    let property = |key: &str| node.metadata.iter().find(|p| p.key == key).map(|p| p.value.as_str());
    if let Some(path) = property(PROPERTY) {
        return path.to_owned();
    }
    if let Some(path) = from_node_name(&node.name) {
        return path;
    }
    let mut weights = weights;
    if let Some(path) = weights.find_map(from_parameter) {
        return path.to_owned();
    }
    let scopes = property("pkg.torch.onnx.name_scopes").and_then(from_name_scopes);
    scopes.or_else(|| property("namespace").and_then(from_namespace)).unwrap_or_default()
}

/// `/layer1/layer1.0/conv1/Conv` → `layer1.0.conv1`: a segment that begins with its parent's name stands for
/// both.
fn from_node_name(name: &str) -> Option<String> {
    let (scopes, _op) = name.strip_prefix('/')?.rsplit_once('/')?;
    let mut parts: Vec<&str> = Vec::new();
    for segment in scopes.split('/').filter(|s| !s.is_empty()) {
        let repeats = |parent: &&str| segment.strip_prefix(*parent).is_some_and(|rest| rest.starts_with('.'));
        if parts.last().is_some_and(repeats) {
            parts.pop();
        }
        parts.push(segment);
    }
    Some(parts.join("."))
}

/// `layer1.0.conv1.weight` → `layer1.0.conv1`.
fn from_parameter(name: &str) -> Option<&str> {
    let (path, parameter) = name.rsplit_once('.')?;
    let plain = |c: char| c.is_alphanumeric() || c == '_' || c == '.' || c == '-';
    (PARAMETERS.contains(&parameter) && !path.is_empty() && path.chars().all(plain)).then_some(path)
}

/// `['', 'layer1', 'layer1.0', 'layer1.0.conv1', 'conv2d_1']` → `layer1.0.conv1`: the last is the op.
fn from_name_scopes(list: &str) -> Option<String> {
    let quoted: Vec<&str> = list.split(['\'', '"']).skip(1).step_by(2).collect();
    let (_op, scopes) = quoted.split_last()?;
    scopes.last().map(|s| (*s).to_owned())
}

/// `: ResNet/layer1.0: BasicBlock/add: aten.add.Tensor` → `layer1.0`.
fn from_namespace(text: &str) -> Option<String> {
    let entries: Vec<&str> = text.split('/').collect();
    let (_op, scopes) = entries.split_last()?;
    let (path, _class) = scopes.last()?.split_once(':')?;
    Some(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::model::StringStringEntry;
    use super::*;

    fn path(name: &str, weights: &[&str], properties: &[(&str, &str)]) -> String {
        let node = NodeProto {
            name: name.into(),
            metadata: properties.iter().map(|(k, v)| StringStringEntry::new(*k, *v)).collect(),
            ..NodeProto::default()
        };
        module_path(&node, weights.iter().copied())
    }

    #[test]
    fn paths_of_the_older_exporter() {
        assert_eq!(path("/layer1/layer1.0/conv1/Conv", &[], &[]), "layer1.0.conv1");
        assert_eq!(
            path("/features/features.1/features.1.0/block/block.2/Add_1", &[], &[]),
            "features.1.0.block.2"
        );
        assert_eq!(
            path("/layer2/layer2.0/downsample/downsample.0/Conv", &["onnx::Conv_1"], &[]),
            "layer2.0.downsample.0"
        );
        assert_eq!(path("/layer1/layer10/Relu", &[], &[]), "layer1.layer10");
        assert_eq!(path("/Flatten", &[], &[]), "");
    }

    #[test]
    fn paths_from_weights() {
        assert_eq!(path("Conv_0", &["features.0.weight", "features.0.bias"], &[]), "features.0");
        assert_eq!(path("Conv_0", &["onnx::Conv_123", "val_3"], &[]), "");
        assert_eq!(path("Conv_0", &["model/conv/Conv2D/ReadVariableOp.weight"], &[]), "");
    }

    #[test]
    fn paths_of_the_newer_exporter() {
        let scopes = "['', 'layer1', 'layer1.0', 'layer1.0.bn1', '_native_batch_norm_legit_no_training_1']";
        let namespace = ": torchvision.models.resnet.ResNet/layer1.0: torchvision.models.resnet.BasicBlock/add_20: aten.add.Tensor";
        assert_eq!(path("node_x", &[], &[("pkg.torch.onnx.name_scopes", scopes)]), "layer1.0.bn1");
        assert_eq!(path("node_x", &[], &[("namespace", namespace)]), "layer1.0");
        let folded = [("pkg.torch.onnx.name_scopes", scopes)];
        assert_eq!(path("node_Conv_3", &["layer1.0.conv1.weight"], &folded), "layer1.0.conv1");
        assert_eq!(path("node_view", &[], &[("pkg.torch.onnx.name_scopes", "['', 'view']")]), "");
    }
}
