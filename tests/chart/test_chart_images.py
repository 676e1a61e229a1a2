import pytest
import yaml

from tests.chart.chart_rendering import (
    CHART,
    REGISTRY,
    Object,
    container_of,
    needs_helm,
    only,
    pod_of,
    render,
    template,
)

DIGEST = f"sha256:{'a' * 64}"


def agent_image_of(objects: list[Object]) -> tuple[str, str]:
    """The image that brings the agent into worker pods, and its pull policy."""
    environment = {
        variable["name"]: variable.get("value") for variable in container_of(objects)["env"]
    }
    return environment["AGENT_IMAGE"], environment["AGENT_IMAGE_PULL_POLICY"]


@needs_helm
@pytest.mark.parametrize(
    ("settings", "image", "agent"),
    [
        ((), "elastic-pytorch-operator:VERSION", "elastic-pytorch-agent:VERSION"),
        (('image.tag="dev"',), "elastic-pytorch-operator:dev", "elastic-pytorch-agent:dev"),
        (
            ('image.tag="dev"', 'agentImage.tag="1"'),
            "elastic-pytorch-operator:dev",
            "elastic-pytorch-agent:1",
        ),
        (
            (f'image.digest="{DIGEST}"',),
            f"elastic-pytorch-operator@{DIGEST}",
            "elastic-pytorch-agent:VERSION",
        ),
        (
            (f'agentImage.digest="{DIGEST}"',),
            "elastic-pytorch-operator:VERSION",
            f"elastic-pytorch-agent@{DIGEST}",
        ),
        (
            ('image.repository="ml/operator"',),
            "ml/operator:VERSION",
            "elastic-pytorch-agent:VERSION",
        ),
    ],
)
def test_images_are_named_by_registry_and_tag_or_digest(
    settings: tuple[str, ...], image: str, agent: str
) -> None:
    objects = render(*settings)
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    found = container_of(objects)["image"], agent_image_of(objects)[0]
    assert found == tuple(
        f"{REGISTRY}/{name.replace('VERSION', version)}" for name in (image, agent)
    )
    assert (
        only(objects, "Pod", "elastic-pytorch-operator-test")["spec"]["containers"][0]["image"]
        == found[0]
    )


@needs_helm
def test_agents_image_is_pulled_as_the_operators_unless_told() -> None:
    assert agent_image_of(render('image.pullPolicy="Always"'))[1] == "Always"
    assert (
        agent_image_of(render('image.pullPolicy="Always"', 'agentImage.pullPolicy="Never"'))[1]
        == "Never"
    )


@needs_helm
def test_each_image_may_come_from_a_registry_of_its_own() -> None:
    settings = ('image.registry="a.example.com"', 'agentImage={"repository":"b.example.com/agent"}')
    result = template(*settings, registry="")
    assert result.returncode == 0, result.stderr
    assert 'image: "a.example.com/elastic-pytorch-operator:' in result.stdout
    assert 'value: "b.example.com/agent:' in result.stdout


@needs_helm
@pytest.mark.parametrize(
    ("settings", "value"), [((), "image"), (('image.registry="a.example.com"',), "agentImage")]
)
def test_installation_without_a_registry_says_what_to_set(
    settings: tuple[str, ...], value: str
) -> None:
    result = template(*settings, registry="")
    assert result.returncode != 0
    assert (
        f"{value}.registry is not set, and no image is published: build and push both images"
        in result.stderr
    )
    assert "then set global.imageRegistry to their registry" in result.stderr


@needs_helm
def test_registry_that_is_named_twice_is_refused() -> None:
    result = template('image.repository="registry.example.com/elastic-pytorch-operator"')
    assert result.returncode != 0
    assert (
        "image.repository is registry.example.com/elastic-pytorch-operator, which names a registry"
        in result.stderr
    )
    assert "leave the registry out of image.repository" in result.stderr


@needs_helm
def test_pull_secrets_of_the_whole_and_of_the_chart_are_used() -> None:
    objects = render(
        'global.imagePullSecrets=[{"name":"all"}]', 'imagePullSecrets=[{"name":"registry"}]'
    )
    tester = only(objects, "Pod", "elastic-pytorch-operator-test")["spec"]
    for pod in (pod_of(objects)["spec"], tester):
        assert pod["imagePullSecrets"] == [{"name": "all"}, {"name": "registry"}]


@needs_helm
def test_missing_list_of_pull_secrets_names_none() -> None:
    missing = "global.imagePullSecrets=null"
    assert "imagePullSecrets" not in pod_of(render(missing, "imagePullSecrets=null"))["spec"]
    objects = render(missing, 'imagePullSecrets=[{"name":"registry"}]')
    assert pod_of(objects)["spec"]["imagePullSecrets"] == [{"name": "registry"}]
