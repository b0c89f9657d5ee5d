// psalint reads rendered manifests on standard input and judges every pod template by a level of
// the Pod Security Standards, with the code the API server itself runs.
//
//	psalint restricted < rendered.yaml
//
// Exit status: 0 all allowed, 1 some refused (listed), 2 bad usage or no pod template at all.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

func main() {
	if len(os.Args) != 2 {
		fail(errors.New("usage: psalint LEVEL < rendered.yaml"))
	}
	level, err := api.ParseLevel(os.Args[1])
	if err != nil {
		fail(err)
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		fail(err)
	}
	seen, refused := 0, 0
	documents := yaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fail(err)
		}
		// A kind unknown to client-go is a custom resource and holds no pod template of ours.
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
		if err != nil {
			continue
		}
		name, template := podTemplate(object)
		if template == nil {
			continue
		}
		seen++
		wanted := api.LevelVersion{Level: level, Version: api.LatestVersion()}
		verdict := policy.AggregateCheckResults(
			evaluator.EvaluatePod(wanted, &template.ObjectMeta, &template.Spec))
		if !verdict.Allowed {
			refused++
			fmt.Printf("%s: %s\n", name, verdict.ForbiddenDetail())
		}
	}
	fmt.Printf("%d pod templates, %d refused at %s\n", seen, refused, level)
	if seen == 0 {
		fail(errors.New("no pod template in the input"))
	}
	if refused > 0 {
		os.Exit(1)
	}
}

func podTemplate(object runtime.Object) (string, *corev1.PodTemplateSpec) {
	switch o := object.(type) {
	case *appsv1.Deployment:
		return "Deployment/" + o.Name, &o.Spec.Template
	case *batchv1.Job:
		return "Job/" + o.Name, &o.Spec.Template
	case *corev1.Pod:
		return "Pod/" + o.Name, &corev1.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec}
	}
	return "", nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "psalint:", err)
	os.Exit(2)
}
