//! Changes of single fields, for those who push: `interfaces.to-chi.capacity_bps=200000000000`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A field with the value that it is to get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    /// Path of the field: `openr.bfd.tx`, `interfaces.NAME.enabled`. `*` instead of a name means all.
    pub path: String,
    /// The value.
    pub value: Value,
}

impl Edit {
    /// Changes a configuration (JSON); nothing is changed if it fails.
    ///
    /// # Errors
    /// There is no such field; the words name those that there are.
    pub fn apply(&self, config: &mut Value) -> Result<(), String> {
        let words = words(&self.path);
        let (last, way) = words.split_last().ok_or_else(|| "no field is named".to_owned())?;
        let mut changed = config.clone();
        let mut places = vec![&mut changed];
        for word in way {
            places = step(places, word).map_err(|there| self.none(word, &there))?;
        }
        for place in places {
            let there =
                place.as_object_mut().ok_or_else(|| format!("{}: not in a group of fields", self.path))?;
            if !there.contains_key(*last) {
                let names: Vec<String> = there.keys().cloned().collect();
                return Err(self.none(last, &names));
            }
            there.insert((*last).to_owned(), self.value.clone());
        }
        *config = changed;
        Ok(())
    }

    fn none(&self, word: &str, there: &[String]) -> String {
        format!("{}: there is no {word}; there are {}", self.path, there.join(", "))
    }
}

/// The words of a path. Names of interfaces may have dots: what lies between the first and the last is one.
fn words(path: &str) -> Vec<&str> {
    if let Some((list, rest)) = path.split_once('.')
        && list == "interfaces"
        && let Some((name, field)) = rest.rsplit_once('.')
    {
        return vec![list, name, field];
    }
    path.split('.').filter(|word| !word.is_empty()).collect()
}

/// One step down from every place; the names that there are if there is none of that name.
fn step<'a>(places: Vec<&'a mut Value>, word: &str) -> Result<Vec<&'a mut Value>, Vec<String>> {
    let mut next = Vec::new();
    let mut names = Vec::new();
    for place in places {
        match place {
            Value::Object(fields) => {
                names.extend(fields.keys().cloned());
                next.extend(fields.get_mut(word));
            }
            Value::Array(list) => {
                for thing in list {
                    let name = thing.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
                    if word == "*" || word == name {
                        next.push(thing);
                    }
                    names.push(name);
                }
            }
            _ => {}
        }
    }
    if next.is_empty() { Err(names) } else { Ok(next) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn edit(path: &str, value: Value) -> (Value, Result<(), String>) {
        let mut config = json!({
            "node": "x",
            "interfaces": [{"name": "to-chi", "enabled": true}, {"name": "to-lla.2", "enabled": true}],
            "openr": {"hello": 1, "bfd": {"tx": 20}},
        });
        let done = Edit { path: path.to_owned(), value }.apply(&mut config);
        (config, done)
    }

    #[test]
    fn fields_are_found_by_their_paths() {
        assert_eq!(edit("openr.bfd.tx", json!(5)).0["openr"]["bfd"]["tx"], 5);
        let (config, done) = edit("interfaces.to-lla.2.enabled", json!(false));
        assert_eq!((done, &config["interfaces"][1]["enabled"]), (Ok(()), &json!(false)));
        assert_eq!(config["interfaces"][0]["enabled"], true);
        let (config, _) = edit("interfaces.*.enabled", json!(false));
        assert!(config["interfaces"].as_array().unwrap().iter().all(|i| i["enabled"] == false));
    }

    #[test]
    fn what_is_not_there_is_told_with_what_is() {
        let wrong = |path: &str| edit(path, json!(1)).1.unwrap_err();
        assert_eq!(
            wrong("interfaces.to-prn.enabled"),
            "interfaces.to-prn.enabled: there is no to-prn; there are to-chi, to-lla.2"
        );
        assert_eq!(wrong("openr.bfd.rx"), "openr.bfd.rx: there is no rx; there are tx");
        assert_eq!(wrong(""), "no field is named");
        assert_eq!(wrong("node.x"), "node.x: not in a group of fields");
    }
}
